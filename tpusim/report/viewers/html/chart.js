// What all canvases share: sharp pixels, redrawing once per frame, ticks at round numbers.

class Chart {
  constructor(canvas, height) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.height = height;
    this.pending = false;
    // The first call comes when nothing has changed yet.
    new ResizeObserver(() => { if (canvas.clientWidth !== this.width) this.redraw(); }).observe(canvas);
  }

  // Size in CSS pixels, the context scaled to the screen's.
  prepare() {
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    const [w, h] = [Math.round(width * ratio), Math.round(this.height * ratio)];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
      this.canvas.style.height = `${this.height}px`;
    }
    this.width = width;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, this.height);
    this.context.font = "12px system-ui, sans-serif";
    this.context.textBaseline = "middle";
    return this.context;
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; if (this.canvas.clientWidth) this.draw(); });
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
}

// A text cut to a width, by an ellipsis; the widths of characters are close enough alike to guess first.
function fitted(context, text, width) {
  if (width < 12) return "";
  if (context.measureText(text).width <= width) return text;
  let count = Math.floor(text.length * width / context.measureText(text).width);
  while (count > 0 && context.measureText(`${text.slice(0, count)}\u2026`).width > width) count--;
  return count > 1 ? `${text.slice(0, count)}\u2026` : "";
}

function roundStep(range, wanted) {
  const raw = range / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= raw);
}

function binaryStep(range, wanted) {
  return 2 ** Math.ceil(Math.log2(range / Math.max(1, wanted)));
}

// The first place whose number is above ``value``.
function upper(numbers, value) {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= value) low = middle + 1; else high = middle;
  }
  return low;
}

// Where a number between two of ``from`` lies between the same two of ``to``.
function along(from, to, value) {
  const i = Math.max(1, Math.min(from.length - 1, upper(from, value)));
  const length = from[i] - from[i - 1];
  return length ? to[i - 1] + (value - from[i - 1]) / length * (to[i] - to[i - 1]) : to[i];
}
