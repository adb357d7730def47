// The time line: the core, its units and what ran beside it on a canvas that zooms; only what is seen is drawn.

const CORE_HEIGHT = 26, UNIT_HEIGHT = 17, LANE_HEIGHT = 15, TITLE_HEIGHT = 22, GAP = 6;
// Where more transfers overlap than this, their number is drawn; zoomed in, each has a lane again.
const MOST_LANES = 6, COUNT_HEIGHT = 40, NOTE_HEIGHT = 14;
// What a fold takes at most, of what is drawn in full.
const FOLDED_SHARE = 0.06;

const LANE_LABELS = { dma: "DMA", ici: "ICI", sparsecore: "SparseCore" };

// Whether dark or light letters can be read on a colour such as #0072b2.
function inkOn(fill) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(fill.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#111820" : "#ffffff";
}

class Timeline extends Chart {
  constructor(store) {
    super(el("timeline-canvas"), 10);
    this.store = store;
    this.folds = store.devices[0].repeats.length > 0;
    this.fold();
    // Of many devices the first, which ended last, is shown whole, and of the others only the core until asked for.
    this.open = new Set([0]);
    this.scroll = el("timeline-scroll");
    this.layOut();
    this.axis = new Chart(el("timeline-axis"), 26);
    this.axis.draw = () => this.drawAxis();
    this.marked = null;
    this.buildLegend();
    this.listen();
    this.redraw();
  }

  // Where times are drawn: outside of folds a picosecond is as long as any other, what loops repeat takes little room.
  fold() {
    const end = Math.max(1, this.store.total_ps);
    const repeats = this.folds ? [...this.store.devices[0].repeats].sort((a, b) => a[1] - b[1]) : [];
    const spans = [];
    for (const [, start, stop] of repeats) {
      const begin = Math.max(start, spans.at(-1)?.[1] ?? 0);
      if (begin < stop) spans.push([begin, stop]);
    }
    const room = FOLDED_SHARE * (end - spans.reduce((sum, [a, b]) => sum + b - a, 0));
    [this.at, this.drawn] = [[0], [0]];
    const add = (ps, length) => { this.at.push(ps); this.drawn.push(this.drawn.at(-1) + length); };
    for (const [begin, stop] of room > 0 ? spans : []) {
      add(begin, begin - this.at.at(-1));
      add(stop, Math.min(room, stop - begin));
    }
    add(end, end - this.at.at(-1));
    this.total = this.drawn.at(-1);
    [this.from, this.to] = [0, this.total];
  }

  // From a time to its place on the axis, and back.
  placed(ps) { return along(this.at, this.drawn, ps); }
  real(place) { return along(this.drawn, this.at, place); }
  get begin() { return this.real(this.from); }
  get end() { return this.real(this.to); }

  toggleFolds() {
    this.folds = !this.folds;
    el("fold").setAttribute("aria-pressed", !this.folds);
    this.fold();
    this.layOut();
    this.redraw();
  }

  tracksOf(device, place) {
    const isOpen = this.open.has(place);
    const tracks = device.name ? [{ kind: "title", label: `${isOpen ? "\u25be" : "\u25b8"} ${device.name}` }] : [];
    for (const row of isOpen ? device.rows : device.rows.slice(0, 1)) {
      if (row.label === "core") {
        tracks.push({ kind: "core", label: "core", row, device, start: row.start, end: row.end, op: row.op, count: row.count });
        if (isOpen && row.watts) {
          const peak = row.watts.reduce((most, watts) => Math.max(most, watts), 1e-9);
          tracks.push({ kind: "unit", label: "power", row, start: row.start, end: row.end, op: row.op, count: row.count, share: row.power ??= row.watts.map((watts) => 1000 * watts / peak), watts: row.watts });
        }
        for (const [unit, share] of Object.entries(isOpen ? row.units ?? {} : {})) {
          tracks.push({ kind: "unit", label: this.store.units[unit], row, start: row.start, end: row.end, op: row.op, count: row.count, share });
        }
      } else {
        const lanes = this.lanesOf(row);
        if (lanes.length > MOST_LANES) tracks.push({ kind: "count", label: `${LANE_LABELS[row.label] ?? row.label} (up to ${row.lanes})`, row, start: row.start, end: row.end, op: row.op, count: row.count });
        else lanes.forEach((lane, number) => tracks.push(this.laneOf(row, lane, number)));
      }
    }
    tracks.forEach((track) => { track.place = place; });
    return tracks;
  }

  // The lanes of a row in which something is seen.
  lanesOf(row) {
    const [begin, end, used] = [this.begin, this.end, new Set()];
    for (let i = 0; i < row.start.length && row.start[i] < end; i++) if (row.end[i] > begin) used.add(row.lane[i]);
    return [...used].sort((a, b) => a - b);
  }

  laneOf(row, lane, number) {
    const mine = [...row.lane.keys()].filter((i) => row.lane[i] === lane);
    const taken = (column) => Float64Array.from(mine, (i) => column[i]);
    return { kind: "lane", label: number ? "" : LANE_LABELS[row.label] ?? row.label, row, start: taken(row.start), end: taken(row.end), op: taken(row.op), count: taken(row.count) };
  }

  // Which tracks there are and where; the canvas is as high as what can be seen of them at once.
  layOut() {
    this.tracks = this.store.devices.flatMap((device, place) => this.tracksOf(device, place));
    const heights = { title: TITLE_HEIGHT, core: CORE_HEIGHT, unit: UNIT_HEIGHT, count: COUNT_HEIGHT, lane: LANE_HEIGHT };
    let y = 2;
    let before = null;
    for (const track of this.tracks) {
      if (before && (track.kind === "title" || (track.kind !== before.kind && before.kind !== "title"))) y += GAP;
      // Above a core with loops it says how often a trip happens.
      if (track.kind === "core" && this.folds && track.device.repeats.length) y += NOTE_HEIGHT;
      Object.assign(track, { y, h: heights[track.kind] });
      y += track.h;
      before = track;
    }
    el("timeline-space").style.height = `${y + 4}px`;
    this.height = Math.min(y + 4, Math.max(240, Math.round(innerHeight * 0.62)));
    this.scroll.style.height = `${this.height}px`;
  }

  get seen() {
    const top = this.scroll.scrollTop;
    return this.tracks.filter((track) => track.y + track.h > top && track.y < top + this.height);
  }

  toggle(place) {
    if (!this.open.delete(place)) this.open.add(place);
    this.layOut();
    this.redraw();
  }

  toggleAll() {
    const all = this.open.size < this.store.devices.length;
    this.open = new Set(all ? this.store.devices.keys() : [0]);
    el("all-devices").setAttribute("aria-pressed", all);
    this.layOut();
    this.redraw();
  }

  get gutter() {
    return this.canvas.clientWidth < 600 ? 74 : 104;
  }

  // Asked for every record: what it needs is taken once per drawing, as asking the page for a width is slow.
  x(ps) {
    return this.left + ((this.at.length > 2 ? this.placed(ps) : ps) - this.from) * this.scale;
  }

  ps(x) {
    return this.real(this.placeAt(x));
  }

  placeAt(x) {
    return this.from + (x - this.gutter) / Math.max(1, this.canvas.clientWidth - this.gutter) * (this.to - this.from);
  }

  draw() {
    this.layOut();
    const context = this.prepare();
    this.left = this.gutter;
    this.scale = (this.width - this.left) / (this.to - this.from);
    this.fills = Array.from({ length: 9 }, (_, place) => colour(`c${place}`));
    this.inks = this.fills.map(inkOn);
    const colours = { ink: colour("ink"), muted: colour("muted"), line: colour("line"), paper: colour("paper"), panel: colour("panel"), area: colour("area"), mark: colour("mark") };
    context.save();
    context.beginPath();
    context.rect(this.left, 0, this.width - this.left, this.height);
    context.clip();
    this.drawGrid(context, colours);
    context.translate(0, -this.scroll.scrollTop);
    for (const track of this.seen) {
      if (track.kind === "unit") this.drawUnit(context, track, colours);
      else if (track.kind === "count") this.drawCount(context, track, colours);
      else if (track.kind !== "title") this.drawTrack(context, track, colours);
      if (track.kind === "core") this.drawRepeats(context, track, colours);
    }
    context.restore();
    this.drawMark(context, colours);
    context.save();
    context.translate(0, -this.scroll.scrollTop);
    for (const track of this.seen) {
      context.fillStyle = track.kind === "title" ? colours.ink : colours.muted;
      context.font = `${track.kind === "title" ? "600 12" : "12"}px system-ui, sans-serif`;
      context.fillText(fitted(context, track.label, track.kind === "title" ? this.width - 8 : this.left - 10), 6, track.y + Math.max(track.h, 12) / 2);
    }
    context.restore();
    this.axis.redraw();
    const [begin, end] = [this.begin, this.end];
    const shown = end - begin;
    el("timeline-range").textContent = `Shown: ${timeText(Math.round(begin), 6)} to ${timeText(Math.round(end), 6)}, ${timeText(Math.round(shown))} of ${timeText(this.store.total_ps)} (${percentText(shown / Math.max(1, this.store.total_ps))}).`;
  }

  // Round times, but none in a fold.
  ticks() {
    const step = roundStep(this.to - this.from, (this.width - this.left) / 110);
    const found = [];
    for (let i = 1; i < this.at.length; i++) {
      if (this.drawn[i] - this.drawn[i - 1] < 0.99 * (this.at[i] - this.at[i - 1])) continue;
      const last = Math.min(this.at[i], this.end);
      for (let at = Math.ceil(Math.max(this.at[i - 1], this.begin) / step) * step; at <= last; at += step) found.push(at);
    }
    return found;
  }

  drawGrid(context, colours) {
    context.strokeStyle = colours.line;
    context.globalAlpha = 0.6;
    context.beginPath();
    for (const at of this.ticks()) { const x = Math.round(this.x(at)) + 0.5; context.moveTo(x, 0); context.lineTo(x, this.height); }
    context.stroke();
    context.globalAlpha = 1;
  }

  drawAxis() {
    const context = this.axis.prepare();
    context.fillStyle = colour("muted");
    context.fillText("time", 6, 13);
    const step = this.to - this.from;
    // Enough digits that two neighbouring ticks differ.
    const digits = Math.max(3, Math.min(12, Math.ceil(Math.log10(this.end / step)) + 2));
    for (const at of this.ticks()) {
      const text = timeText(at, digits);
      const x = this.x(at);
      if (x + context.measureText(text).width + 4 < this.width) context.fillText(text, x + 3, 13);
    }
  }

  drawTrack(context, track, colours) {
    const { store, fills, inks } = this;
    const [first, end] = [upper(track.end, this.begin), this.end];
    const selected = [];
    let drawn = -1;
    for (let i = first; i < track.start.length && track.start[i] < end; i++) {
      const left = this.x(track.start[i]), right = this.x(track.end[i]);
      if (track.op[i] === store.selected) selected.push([left, right]);
      // Half a pixel that is coloured already needs no second coat.
      if (right - drawn < 0.5) continue;
      const number = store.colourOf(track.op[i]);
      const width = Math.max(0.5, right - left - (right - left > 4 ? 1 : 0));
      context.fillStyle = fills[number];
      context.fillRect(left, track.y + 1, width, track.h - (track.h > 10 ? 2 : 1));
      drawn = right;
      if (width > 26 && track.h > 10) {
        const begin = Math.max(left, this.left);
        context.fillStyle = inks[number];
        context.fillText(fitted(context, store.ops.name[track.op[i]], Math.min(right, this.width) - begin - 8), begin + 4, track.y + track.h / 2 + 0.5);
      }
    }
    context.strokeStyle = colours.ink;
    context.lineWidth = 2;
    for (const [left, right] of selected) context.strokeRect(left - 1, track.y + 1, Math.max(2, right - left + 1), track.h - 2);
    context.lineWidth = 1;
  }

  // How long a unit was busy in a step is known, when is not: so its share is the height of the bar.
  drawUnit(context, track, colours) {
    context.fillStyle = colours.panel;
    context.fillRect(this.left, track.y + 1, this.width, track.h - 2);
    context.fillStyle = colours.area;
    let [drawn, height] = [-1, 0];
    const end = this.end;
    for (let i = upper(track.end, this.begin); i < track.start.length && track.start[i] < end; i++) {
      const share = track.share[i];
      if (!share) continue;
      const left = this.x(track.start[i]), right = this.x(track.end[i]);
      const own = Math.max(1, share / 1000 * (track.h - 3));
      if (right - drawn < 0.5 && own <= height) continue;
      context.fillRect(left, track.y + track.h - 1 - own, Math.max(0.5, right - left), own);
      [drawn, height] = [right, own];
    }
  }

  // How many transfers are under way, as an area: the most is the height of the track.
  drawCount(context, track, colours) {
    const steps = new Int32Array(Math.ceil(this.width) + 2);
    const [begin, end] = [this.begin, this.end];
    const pixel = (ps) => Math.max(Math.floor(this.left), Math.min(Math.ceil(this.width), Math.round(this.x(ps))));
    for (let i = 0; i < track.start.length && track.start[i] < end; i++) {
      if (track.end[i] <= begin) continue;
      const from = pixel(track.start[i]);
      steps[from] += 1;
      steps[Math.max(from + 1, pixel(track.end[i]))] -= 1;
    }
    context.fillStyle = colours.panel;
    context.fillRect(this.left, track.y + 1, this.width, track.h - 2);
    context.fillStyle = colours.area;
    for (let x = 0, open = 0; x < steps.length; x++) {
      open += steps[x];
      const height = Math.min(1, open / track.row.lanes) * (track.h - 3);
      if (open > 0) context.fillRect(x, track.y + track.h - 1 - height, 1, height);
    }
  }

  // Folded, the trips that are alike are one hatched stretch, and a line marks the trip that stands for them.
  drawRepeats(context, track, colours) {
    for (const [name, start, end, trips] of track.device.repeats) {
      const [left, right] = [Math.max(this.x(start), this.left), Math.min(this.x(end), this.width)];
      const first = Math.max(this.x(start - (end - start) / trips), this.left);
      context.fillStyle = colours.ink;
      if (first < this.width && left > this.left) {
        context.fillRect(first, track.y - 1, Math.max(2, this.x(start) - first - 1), 2);
        const words = `${name}: this trip ${(trips + 1).toLocaleString("en-US")} times`;
        if (this.folds) this.note(context, words, Math.min(first + 4, this.width - context.measureText(words).width - 4), track.y - 8, colours);
      }
      if (!this.folds || right < this.left || left > this.width) continue;
      context.save();
      context.beginPath();
      context.rect(left, track.y + 1, right - left, track.h - 2);
      context.clip();
      context.fillStyle = colours.panel;
      context.globalAlpha = 0.6;
      context.fillRect(left, track.y, right - left, track.h);
      context.strokeStyle = colours.ink;
      context.beginPath();
      for (let x = left - track.h; x < right; x += 7) { context.moveTo(x, track.y + track.h); context.lineTo(x + track.h, track.y); }
      context.stroke();
      context.globalAlpha = 1;
      const more = `+${trips.toLocaleString("en-US")}`;
      const text = [`${name}: ${more} trips`, `${more} trips`, more].find((words) => context.measureText(words).width < right - left - 12);
      if (text) this.note(context, text, left + 5, track.y + track.h / 2, colours);
      context.restore();
    }
  }

  note(context, text, x, y, colours) {
    context.fillStyle = colours.paper;
    context.globalAlpha = 0.85;
    context.fillRect(x - 3, y - 7, context.measureText(text).width + 6, 14);
    context.globalAlpha = 1;
    context.fillStyle = colours.ink;
    context.fillText(text, x, y);
  }

  drawMark(context, colours) {
    if (!this.marked) return;
    const [left, right] = this.marked.map((ps) => this.x(ps));
    context.fillStyle = colours.mark;
    context.globalAlpha = 0.22;
    context.fillRect(Math.min(left, right), 0, Math.abs(right - left), this.height);
    context.globalAlpha = 1;
  }

  buildLegend() {
    const names = [...this.store.colours.keys()].slice(0, 12);
    el("legend").replaceChildren(...names.map((name) => make("button", { type: "button", title: `Show only ${name} in the op table`, onclick: () => this.onLegend?.(name) },
      make("i", { style: { background: `var(--c${this.store.colours.get(name)})` } }), name)));
  }

  // What can be seen lies between the start and the end of the axis, and is never less than a picosecond per pixel.
  show(from, to) {
    const length = Math.min(this.total, Math.max(200, to - from));
    this.from = Math.max(0, Math.min(this.total - length, from));
    this.to = this.from + length;
    this.redraw();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  move(share) {
    const by = share * (this.to - this.from);
    this.show(this.from + by, this.to + by);
  }

  // The first execution of an op, the device that ended last first.
  find(op) {
    for (const [place, device] of this.store.devices.entries()) {
      for (const row of this.open.has(place) ? device.rows : device.rows.slice(0, 1)) {
        const found = row.op.indexOf(op);
        if (found >= 0) return [row, found];
      }
    }
    return null;
  }

  showOp(op) {
    const found = this.find(op);
    if (!found) return;
    const [row, place] = found;
    const length = Math.max(2000, row.end[place] - row.start[place]);
    this.show(this.placed(row.start[place]) - length * 2, this.placed(row.end[place]) + length * 2);
    this.layOut();
    const track = this.tracks.find((one) => one.row === row && (one.kind === "core" || one.op.includes(op)));
    if (track && !this.seen.includes(track)) this.scroll.scrollTop = Math.max(0, track.y - 30);
  }

  // The next op of the core after the one that is selected, or the first that is seen.
  step(by) {
    const core = this.tracks.find((track) => track.kind === "core");
    if (!core || !core.op.length) return;
    const at = this.cursor ?? core.op.indexOf(this.store.selected);
    const next = at < 0 || core.op[at] !== this.store.selected ? upper(core.end, this.begin) : at + by;
    this.cursor = Math.max(0, Math.min(core.op.length - 1, next));
    this.store.select(core.op[this.cursor], this);
    if (core.start[this.cursor] < this.begin || core.end[this.cursor] > this.end) {
      const [length, middle] = [this.to - this.from, this.placed((core.start[this.cursor] + core.end[this.cursor]) / 2)];
      this.show(middle - length / 2, middle + length / 2);
    }
  }

  trackAt(y) {
    const at = y + this.scroll.scrollTop;
    return this.tracks.find((one) => at >= one.y && at < one.y + one.h);
  }

  hit(x, y) {
    if (x < this.gutter) return null;
    const track = this.trackAt(y);
    if (!track || track.kind === "title") return null;
    const ps = this.ps(x);
    if (this.folds && this.repeatAt(x, y)) return null;
    const slack = 2 * (this.to - this.from) / Math.max(1, this.width);
    // Of what overlaps the ends are in no order.
    const place = track.kind === "count" ? track.start.findIndex((start, i) => start <= ps && ps <= track.end[i]) : upper(track.end, ps - slack);
    if (place < 0) return null;
    return place < track.start.length && track.start[place] <= ps + slack ? { track, place, op: track.op[place] } : null;
  }

  tipOf({ track, place, op }) {
    const { ops } = this.store;
    const length = track.end[place] - track.start[place];
    const lines = [ops.name[op], `${timeText(length)} from ${timeText(track.start[place], 6)}`];
    if (track.count[place] > 1) lines.push(`${track.count[place].toLocaleString("en-US")} executions`);
    if (track.watts) lines.push(`power: ${track.watts[place].toFixed(1)} W`);
    else if (track.kind === "unit") lines.push(`${track.label}: busy ${percentText(track.share[place] / 1000)} of it`);
    else lines.push([ops.category[op], ops.bound_by[op] && `bound by ${ops.bound_by[op]}`].filter(Boolean).join(", "));
    return lines.filter(Boolean).join("\n");
  }

  repeatAt(x, y) {
    const track = this.trackAt(y);
    const ps = this.ps(x);
    return this.folds ? track?.device?.repeats.find(([, start, end]) => start < ps && ps < end) : undefined;
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        this.zoom(1.0015 ** event.deltaY, this.placeAt(this.place(event)[0]));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        this.move(event.deltaX / this.width);
      }
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => this.zoom(0.3, this.placeAt(this.place(event)[0])));
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", () => { this.pressed = null; this.marked = null; });
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.scroll.addEventListener("scroll", () => this.redraw());
    addEventListener("resize", () => { this.layOut(); this.redraw(); });
    el("all-devices").hidden = this.store.devices.length < 2;
    el("fold").hidden = !this.folds;
    document.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => this.command(button.dataset.zoom)));
    this.store.onSelect((op, from) => { if (from !== this) this.cursor = null; this.redraw(); });
  }

  press(event) {
    if (event.button) return;
    const [x] = this.place(event);
    this.pressed = { x, from: this.from, to: this.to, ranged: event.shiftKey, moved: false };
    try { this.canvas.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone already */ }
  }

  drag(event) {
    const [x, y] = this.place(event);
    if (!this.pressed) { this.hover(event, x, y); return; }
    const by = x - this.pressed.x;
    if (!this.pressed.moved && Math.abs(by) < 4) return;
    this.pressed.moved = true;
    hideTip();
    if (this.pressed.ranged) {
      this.marked = [this.ps(this.pressed.x), this.ps(x)];
      this.redraw();
    } else {
      this.canvas.classList.add("dragging");
      const ps = by / (this.width - this.gutter) * (this.pressed.to - this.pressed.from);
      this.show(this.pressed.from - ps, this.pressed.to - ps);
    }
  }

  release(event) {
    const [x, y] = this.place(event);
    const { pressed, marked } = this;
    this.pressed = this.marked = null;
    this.canvas.classList.remove("dragging");
    if (!pressed) return;
    if (marked) { const ends = marked.map((ps) => this.placed(ps)); this.show(Math.min(...ends), Math.max(...ends)); return; }
    const track = this.trackAt(y);
    if (!pressed.moved && track?.kind === "title") { this.toggle(track.place); return; }
    const hit = pressed.moved ? null : this.hit(x, y);
    if (hit) { this.cursor = hit.track.kind !== "core" ? null : hit.place; this.store.select(hit.op, this); }
  }

  hover(event, x, y) {
    const hit = this.hit(x, y);
    const repeat = hit ? null : this.repeatAt(x, y);
    if (hit) showTip(event.clientX, event.clientY, this.tipOf(hit));
    else if (repeat) showTip(event.clientX, event.clientY, `${repeat[0]}: ${repeat[3].toLocaleString("en-US")} more trips like the one before\n${timeText((repeat[2] - repeat[1]) / repeat[3])} each`);
    else hideTip();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const commands = { ArrowLeft: "left", a: "left", ArrowRight: "right", d: "right", w: "in", "+": "in", "=": "in", s: "out", "-": "out", 0: "fit", f: "selection", Enter: "selection", n: "next", p: "previous", Home: "start", End: "end", l: "fold" };
    const command = commands[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (command) { event.preventDefault(); this.command(command); }
  }

  command(name) {
    const length = this.to - this.from;
    ({
      in: () => this.zoom(0.6), out: () => this.zoom(1 / 0.6), left: () => this.move(-0.2), right: () => this.move(0.2),
      fit: () => this.show(0, this.total), selection: () => this.showOp(this.store.selected),
      devices: () => this.toggleAll(), fold: () => this.toggleFolds(),
      next: () => this.step(1), previous: () => this.step(-1), start: () => this.show(0, length), end: () => this.show(this.total - length, this.total),
    })[name]();
  }
}
