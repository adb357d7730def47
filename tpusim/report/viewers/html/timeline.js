// The time line: the core, its units and what ran beside it on a canvas that zooms; only what is seen is drawn.

const CORE_HEIGHT = 26, UNIT_HEIGHT = 17, LANE_HEIGHT = 15, TITLE_HEIGHT = 22, GAP = 6;
// Where many transfers overlap their lanes are thin, or they would push everything else off the screen.
const THIN_LANE_HEIGHT = 7, THICK_LANES = 6;

// Whether dark or light letters can be read on a colour such as #0072b2.
function inkOn(fill) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(fill.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#111820" : "#ffffff";
}

class Timeline extends Chart {
  constructor(store) {
    super(el("timeline-canvas"), 10);
    this.store = store;
    this.total = Math.max(1, store.total_ps);
    this.from = 0;
    this.to = this.total;
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

  tracksOf(device, place) {
    const isOpen = this.open.has(place);
    const tracks = device.name ? [{ kind: "title", label: `${isOpen ? "\u25be" : "\u25b8"} ${device.name}` }] : [];
    for (const row of isOpen ? device.rows : device.rows.slice(0, 1)) {
      if (row.label === "core") {
        tracks.push({ kind: "core", label: "core", row, device, start: row.start, end: row.end, op: row.op, count: row.count });
        if (isOpen && row.watts) {
          const peak = row.watts.reduce((most, watts) => Math.max(most, watts), 1e-9);
          tracks.push({ kind: "unit", label: "power", row, start: row.start, end: row.end, op: row.op, count: row.count, share: row.watts.map((watts) => 1000 * watts / peak), watts: row.watts });
        }
        for (const [unit, share] of Object.entries(isOpen ? row.units ?? {} : {})) {
          tracks.push({ kind: "unit", label: this.store.units[unit], row, start: row.start, end: row.end, op: row.op, count: row.count, share });
        }
      } else {
        for (let lane = 0; lane < row.lanes; lane++) tracks.push(this.laneOf(row, lane));
      }
    }
    tracks.forEach((track) => { track.place = place; });
    return tracks;
  }

  laneOf(row, lane) {
    const mine = [...row.lane.keys()].filter((i) => row.lane[i] === lane);
    const taken = (column) => Float64Array.from(mine, (i) => column[i]);
    const labels = { dma: "DMA", ici: "ICI", sparsecore: "SparseCore" };
    return { kind: "lane", label: lane ? "" : labels[row.label] ?? row.label, row, start: taken(row.start), end: taken(row.end), op: taken(row.op), count: taken(row.count) };
  }

  // Which tracks there are and where; the canvas is as high as what can be seen of them at once.
  layOut() {
    this.tracks = this.store.devices.flatMap((device, place) => this.tracksOf(device, place));
    const heights = { title: TITLE_HEIGHT, core: CORE_HEIGHT, unit: UNIT_HEIGHT };
    let y = 2;
    let before = null;
    for (const track of this.tracks) {
      if (before && (track.kind === "title" || (track.kind !== before.kind && before.kind !== "title"))) y += GAP;
      Object.assign(track, { y, h: heights[track.kind] ?? (track.row.lanes > THICK_LANES ? THIN_LANE_HEIGHT : LANE_HEIGHT) });
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
    return this.left + (ps - this.from) * this.scale;
  }

  ps(x) {
    return this.from + (x - this.gutter) / Math.max(1, this.canvas.clientWidth - this.gutter) * (this.to - this.from);
  }

  draw() {
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
    const shown = this.to - this.from;
    el("timeline-range").textContent = `Shown: ${timeText(Math.round(this.from), 6)} to ${timeText(Math.round(this.to), 6)}, ${timeText(Math.round(shown))} of ${timeText(this.store.total_ps)} (${percentText(shown / this.total)}).`;
  }

  ticks() {
    const step = roundStep(this.to - this.from, (this.width - this.left) / 110);
    const found = [];
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) found.push(at);
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
    const digits = Math.max(3, Math.min(12, Math.ceil(Math.log10(this.to / step)) + 2));
    for (const at of this.ticks()) {
      const text = timeText(at, digits);
      const x = this.x(at);
      if (x + context.measureText(text).width + 4 < this.width) context.fillText(text, x + 3, 13);
    }
  }

  drawTrack(context, track, colours) {
    const { store, fills, inks } = this;
    const first = upper(track.end, this.from);
    const selected = [];
    let drawn = -1;
    for (let i = first; i < track.start.length && track.start[i] < this.to; i++) {
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
    for (let i = upper(track.end, this.from); i < track.start.length && track.start[i] < this.to; i++) {
      const share = track.share[i];
      if (!share) continue;
      const left = this.x(track.start[i]), right = this.x(track.end[i]);
      const own = Math.max(1, share / 1000 * (track.h - 3));
      if (right - drawn < 0.5 && own <= height) continue;
      context.fillRect(left, track.y + track.h - 1 - own, Math.max(0.5, right - left), own);
      [drawn, height] = [right, own];
    }
  }

  drawRepeats(context, track, colours) {
    for (const [name, start, end, trips] of track.device.repeats) {
      const [left, right] = [Math.max(this.x(start), this.left), Math.min(this.x(end), this.width)];
      if (right < this.left || left > this.width) continue;
      context.strokeStyle = colours.muted;
      context.save();
      context.beginPath();
      context.rect(left, track.y + 1, right - left, track.h - 2);
      context.clip();
      context.globalAlpha = 0.45;
      context.beginPath();
      for (let x = left - track.h; x < right; x += 7) { context.moveTo(x, track.y + track.h); context.lineTo(x + track.h, track.y); }
      context.stroke();
      context.globalAlpha = 1;
      context.strokeRect(left + 0.5, track.y + 1.5, right - left - 1, track.h - 3);
      const text = fitted(context, `${name}: ${trips.toLocaleString("en-US")} more trips like the one before`, right - left - 12);
      if (text) {
        context.fillStyle = colours.paper;
        context.fillRect(left + 4, track.y + 5, context.measureText(text).width + 6, track.h - 10);
        context.fillStyle = colours.ink;
        context.fillText(text, left + 7, track.y + track.h / 2);
      }
      context.restore();
    }
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

  // What can be seen lies between the start and the end of the run, and is never less than a picosecond per pixel.
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
    for (const track of this.tracks) {
      if (track.kind !== "core" && track.kind !== "lane") continue;
      const place = track.op.indexOf(op);
      if (place >= 0) return [track, place];
    }
    return null;
  }

  showOp(op) {
    const found = this.find(op);
    if (!found) return;
    const [track, place] = found;
    const length = Math.max(2000, track.end[place] - track.start[place]);
    this.show(track.start[place] - length * 2, track.end[place] + length * 2);
    if (!this.seen.includes(track)) this.scroll.scrollTop = Math.max(0, track.y - 30);
  }

  // The next op of the core after the one that is selected, or the first that is seen.
  step(by) {
    const core = this.tracks.find((track) => track.kind === "core");
    if (!core || !core.op.length) return;
    const at = this.cursor ?? core.op.indexOf(this.store.selected);
    const next = at < 0 || core.op[at] !== this.store.selected ? upper(core.end, this.from) : at + by;
    this.cursor = Math.max(0, Math.min(core.op.length - 1, next));
    this.store.select(core.op[this.cursor], this);
    if (core.start[this.cursor] < this.from || core.end[this.cursor] > this.to) {
      const [length, middle] = [this.to - this.from, (core.start[this.cursor] + core.end[this.cursor]) / 2];
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
    const slack = 2 * (this.to - this.from) / Math.max(1, this.width);
    const place = upper(track.end, ps - slack);
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
    return track?.device?.repeats.find(([, start, end]) => start <= ps && ps <= end);
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        this.zoom(1.0015 ** event.deltaY, this.ps(this.place(event)[0]));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        this.move(event.deltaX / this.width);
      }
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => this.zoom(0.3, this.ps(this.place(event)[0])));
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", () => { this.pressed = null; this.marked = null; });
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.scroll.addEventListener("scroll", () => this.redraw());
    addEventListener("resize", () => { this.layOut(); this.redraw(); });
    el("all-devices").hidden = this.store.devices.length < 2;
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
    if (marked) { this.show(Math.min(...marked), Math.max(...marked)); return; }
    const track = this.trackAt(y);
    if (!pressed.moved && track?.kind === "title") { this.toggle(track.place); return; }
    const hit = pressed.moved ? null : this.hit(x, y);
    if (hit) { this.cursor = hit.track.kind === "lane" ? null : hit.place; this.store.select(hit.op, this); }
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
    const commands = { ArrowLeft: "left", a: "left", ArrowRight: "right", d: "right", w: "in", "+": "in", "=": "in", s: "out", "-": "out", 0: "fit", f: "selection", Enter: "selection", n: "next", p: "previous", Home: "start", End: "end" };
    const command = commands[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (command) { event.preventDefault(); this.command(command); }
  }

  command(name) {
    const length = this.to - this.from;
    ({
      in: () => this.zoom(0.6), out: () => this.zoom(1 / 0.6), left: () => this.move(-0.2), right: () => this.move(0.2),
      fit: () => this.show(0, this.total), selection: () => this.showOp(this.store.selected),
      devices: () => this.toggleAll(),
      next: () => this.step(1), previous: () => this.step(-1), start: () => this.show(0, length), end: () => this.show(this.total - length, this.total),
    })[name]();
  }
}
