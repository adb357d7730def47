// Work per byte of HBM against work per second, a dot per op, under the chip's roofs.

const LEAST_RADIUS = 4, NAMED = 12;

class Roofline extends Chart {
  constructor(store) {
    super(el("roofline-canvas"), 420);
    this.store = store;
    this.points = this.gather();
    this.current = -1;
    this.listen();
    this.redraw();
    if (!this.points.length) el("roofline-at").textContent = "No op of this program does arithmetic on data from HBM.";
  }

  gather() {
    const { ops } = this.store;
    const found = [];
    for (let op = 0; op < ops.tabled; op++) {
      const [flops, bytes, ps] = [ops.flops[op], ops.hbm_bytes[op], ops.time[op]];
      // What stays in VMEM has no place on this axis.
      if (flops > 0 && bytes > 0 && ps > 0) found.push({ op, ps, intensity: flops / bytes, rate: flops / ps * 1e12 });
    }
    // Large dots first, so that small ones lie on top of them.
    return found.sort((a, b) => b.ps - a.ps);
  }

  ranges() {
    const roofs = this.store.roofs;
    const ridge = roofs.matrix_flops_per_second / roofs.hbm_bytes_per_second;
    const xs = this.points.map((point) => point.intensity);
    const ys = this.points.map((point) => point.rate);
    const least = (numbers, start) => numbers.reduce((a, b) => Math.min(a, b), start);
    const most = (numbers, start) => numbers.reduce((a, b) => Math.max(a, b), start);
    const down = (value) => Math.floor(Math.log10(value));
    const left = Math.max(-6, down(least(xs, ridge / 100)));
    return { left, right: Math.ceil(Math.log10(most(xs, ridge * 30))), bottom: Math.max(4, down(least(ys, 1e11))), top: Math.log10(roofs.matrix_flops_per_second * 2) };
  }

  draw() {
    const context = this.prepare();
    const range = this.ranges();
    const [left, right, top, bottom] = [78, this.width - 14, 12, this.height - 40];
    this.x = (intensity) => left + (Math.log10(intensity) - range.left) / (range.right - range.left) * (right - left);
    this.y = (rate) => bottom - (Math.log10(rate) - range.bottom) / (range.top - range.bottom) * (bottom - top);
    this.drawGrid(context, range, [left, right, top, bottom]);
    context.save();
    context.beginPath();
    context.rect(left, top - 6, right - left + 6, bottom - top + 6);
    context.clip();
    this.drawRoofs(context, range, [left, right]);
    this.drawPoints(context);
    context.restore();
  }

  drawGrid(context, range, [left, right, top, bottom]) {
    context.strokeStyle = colour("line");
    context.fillStyle = colour("muted");
    context.textAlign = "center";
    // On narrow screens every second power of ten, or fewer.
    const every = Math.ceil((range.right - range.left) * 58 / Math.max(1, right - left));
    for (let power = range.left; power <= range.right; power++) {
      const x = Math.round(this.x(10 ** power)) + 0.5;
      context.beginPath(); context.moveTo(x, top); context.lineTo(x, bottom); context.stroke();
      context.textAlign = power === range.right ? "right" : "center";
      if ((power - range.left) % every === 0) context.fillText(power < 0 ? trimmed(10 ** power) : countText(10 ** power), x, bottom + 12);
    }
    context.textAlign = "right";
    for (let power = range.bottom; power <= range.top; power++) {
      const y = Math.round(this.y(10 ** power)) + 0.5;
      context.beginPath(); context.moveTo(left, y); context.lineTo(right, y); context.stroke();
      context.fillText(countText(10 ** power), left - 6, y);
    }
    context.fillText("FLOP per byte of HBM traffic", right, bottom + 29);
    context.textAlign = "left";
    context.fillText("FLOP/s", 6, bottom + 29);
  }

  drawRoofs(context, range, [left, right]) {
    const roofs = this.store.roofs;
    const edge = 10 ** range.left;
    context.strokeStyle = colour("roof");
    for (const [name, flat, dash] of [[`MXU, ${roofs.matrix_type}`, roofs.matrix_flops_per_second, []], ["vector ALU, f32", roofs.vector_flops_per_second, [5, 4]]]) {
      const ridge = this.x(flat / roofs.hbm_bytes_per_second);
      context.setLineDash(dash);
      context.lineWidth = 2;
      context.beginPath(); context.moveTo(Math.max(left, ridge), this.y(flat)); context.lineTo(right, this.y(flat)); context.stroke();
      context.setLineDash([]);
      this.label(context, `${name}: ${rateText(flat, "FLOP")}`, right - 4, this.y(flat) + 11, "right");
    }
    const top = roofs.matrix_flops_per_second;
    context.beginPath(); context.moveTo(left, this.y(edge * roofs.hbm_bytes_per_second)); context.lineTo(this.x(top / roofs.hbm_bytes_per_second), this.y(top)); context.stroke();
    context.lineWidth = 1;
    this.drawSlope(context, roofs, range);
  }

  // In the middle of the slope, along it.
  drawSlope(context, roofs, range) {
    const rate = roofs.hbm_bytes_per_second;
    const ridge = Math.log10(roofs.matrix_flops_per_second / rate);
    const middle = 10 ** ((Math.max(range.left, range.bottom - Math.log10(rate)) + ridge) / 2);
    const [x, y] = [this.x(middle), this.y(middle * rate)];
    context.save();
    context.translate(x, y);
    context.rotate(Math.atan2(this.y(10 * middle * rate) - y, this.x(10 * middle) - x));
    this.label(context, `HBM: ${rateText(rate, "B")}`, 0, -11, "center");
    context.restore();
  }

  // On a ground of its own, as lines and dots may run behind it.
  label(context, text, x, y, align) {
    const width = context.measureText(text).width + 4;
    const left = align === "right" ? x - width + 2 : x - width / 2;
    context.globalAlpha = 0.8;
    context.fillStyle = colour("paper");
    context.fillRect(left, y - 7, width, 14);
    context.globalAlpha = 1;
    context.fillStyle = colour("roof");
    context.textAlign = align;
    context.fillText(text, x, y);
    context.textAlign = "left";
  }

  radius(point) {
    return Math.max(LEAST_RADIUS, 26 * Math.sqrt(point.ps / Math.max(1, this.store.total_ps)));
  }

  drawPoints(context) {
    const fills = Array.from({ length: 9 }, (_, place) => colour(`c${place}`));
    context.strokeStyle = colour("paper");
    for (const point of this.points) {
      const [x, y, radius] = [this.x(point.intensity), this.y(point.rate), this.radius(point)];
      context.fillStyle = fills[this.store.colourOf(point.op)];
      // Of thousands of ops most are dots of this size, which as circles would take a second.
      if (radius <= LEAST_RADIUS && this.points.length > 2000) { context.fillRect(x - 2.5, y - 2.5, 5, 5); continue; }
      context.globalAlpha = 0.75;
      context.beginPath(); context.arc(x, y, radius, 0, 7); context.fill();
      context.globalAlpha = 1;
      context.stroke();
    }
    this.drawNames(context);
    const chosen = this.points.find((point) => point.op === this.store.selected);
    if (!chosen) return;
    context.strokeStyle = colour("ink");
    context.lineWidth = 2.5;
    context.beginPath(); context.arc(this.x(chosen.intensity), this.y(chosen.rate), this.radius(chosen) + 2, 0, 7); context.stroke();
    context.lineWidth = 1;
  }

  // The longest ops bear their names, beside their dots, as far as there is room.
  drawNames(context) {
    const taken = this.points.slice(0, NAMED).map((point) => this.box(point, this.radius(point)));
    for (const point of this.points.slice(0, NAMED)) {
      const text = fitted(context, this.store.ops.name[point.op], 150);
      const [x, y, radius, width] = [this.x(point.intensity), this.y(point.rate), this.radius(point) + 4, context.measureText(text).width];
      const places = [[x + radius, y], [x - radius - width, y], [x - width / 2, y - radius - 6], [x - width / 2, y + radius + 7]];
      const free = places.find(([left, middle]) => left > 80 && left + width < this.width - 10 && middle > 14 && !taken.some((box) => left < box[2] && left + width > box[0] && middle - 7 < box[3] && middle + 7 > box[1]));
      if (!free) continue;
      taken.push([free[0], free[1] - 7, free[0] + width, free[1] + 7]);
      this.label(context, text, free[0] + width / 2, free[1], "center");
    }
  }

  box(point, radius) {
    const [x, y] = [this.x(point.intensity), this.y(point.rate)];
    return [x - radius, y - radius, x + radius, y + radius];
  }

  textOf(point) {
    const { ops, roofs } = this.store;
    const roof = Math.min(roofs.matrix_flops_per_second, point.intensity * roofs.hbm_bytes_per_second);
    return `${ops.name[point.op]}: ${rateText(point.rate, "FLOP")} at ${intensityText(point.intensity)}, ${percentText(point.rate / roof)} of the roof; ${timeText(point.ps)}, ${ops.category[point.op]}`;
  }

  nearest([x, y]) {
    let [best, least] = [null, Infinity];
    for (const point of this.points) {
      const distance = Math.hypot(this.x(point.intensity) - x, this.y(point.rate) - y) - this.radius(point);
      if (distance < 6 && distance <= least) [best, least] = [point, Math.max(distance, 0)];
    }
    return best;
  }

  listen() {
    this.canvas.addEventListener("pointermove", (event) => {
      const point = this.x ? this.nearest(this.place(event)) : null;
      if (point) showTip(event.clientX, event.clientY, this.textOf(point).replace(": ", "\n").replace("; ", "\n")); else hideTip();
    });
    this.canvas.addEventListener("pointerleave", hideTip);
    this.canvas.addEventListener("click", (event) => {
      const point = this.x ? this.nearest(this.place(event)) : null;
      if (point) this.choose(this.points.indexOf(point));
    });
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step && this.points.length) { event.preventDefault(); this.choose(Math.max(0, Math.min(this.points.length - 1, this.current + step))); }
      if (event.key === "Enter") { event.preventDefault(); this.onEnter?.(); }
    });
    this.store.onSelect((op) => {
      this.current = this.points.findIndex((point) => point.op === op);
      el("roofline-at").textContent = this.current >= 0 ? this.textOf(this.points[this.current]) : "";
      this.redraw();
    });
  }

  choose(place) {
    this.store.select(this.points[place].op, this);
  }
}
