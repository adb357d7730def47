// Memory in use at each instruction of the schedule, and the buffers that are alive at the cursor.

const SHOWN_BUFFERS = 200;

class Memory extends Chart {
  constructor(store) {
    super(el("memory-canvas"), 300);
    this.store = store;
    this.kept = false;
    this.buildSpaces();
    this.listen();
    if (store.memory.length) this.choose(store.memory[0]);
    else el("memory-at").textContent = "No buffers are known of this program.";
  }

  buildSpaces() {
    const group = el("memory-space");
    group.replaceChildren(...this.store.memory.map((space) => make("button", { type: "button", "data-space": space.space, "aria-pressed": "false", text: space.space.toUpperCase(), onclick: () => this.choose(space) })));
  }

  choose(space) {
    this.space = space;
    for (const button of el("memory-space").children) button.setAttribute("aria-pressed", button.dataset.space === space.space);
    this.kept = true;
    this.moveTo(space.peak_position);
  }

  get left() {
    return 74;
  }

  get count() {
    return Math.max(1, this.space.alive.length);
  }

  draw() {
    const context = this.prepare();
    if (!this.space) return;
    const { alive, held_bytes: held, peak_bytes: peak } = this.space;
    const [bottom, top, right] = [this.height - 26, 14, this.width - 10];
    const capacity = this.store.capacity[this.space.space] ?? 0;
    // The chip's capacity is drawn where it is near enough to matter.
    const most = Math.max(1, peak, capacity && peak > capacity * 0.45 ? capacity : 0) * 1.04;
    this.x = (position) => this.left + position / this.count * (right - this.left);
    const y = (bytes) => bottom - bytes / most * (bottom - top);
    this.drawGrid(context, most, y, right, bottom);
    if (held) {
      context.fillStyle = colour("held");
      context.fillRect(this.left, y(held), right - this.left, bottom - y(held));
    }
    this.drawArea(context, alive, held, y);
    if (capacity && capacity <= most) this.drawLine(context, y(capacity), right, `capacity ${sizeText(capacity)}`);
    this.drawCursor(context, y, top, bottom);
  }

  drawGrid(context, most, y, right, bottom) {
    const step = binaryStep(most, 5);
    context.strokeStyle = colour("line");
    context.fillStyle = colour("muted");
    context.textAlign = "right";
    for (let bytes = 0; bytes <= most; bytes += step) {
      const at = Math.round(y(bytes)) + 0.5;
      context.beginPath(); context.moveTo(this.left, at); context.lineTo(right, at); context.stroke();
      context.fillText(sizeText(bytes), this.left - 6, at);
    }
    context.textAlign = "left";
    context.fillText("instruction of the schedule", this.left, bottom + 15);
    context.textAlign = "right";
    context.fillText(this.count.toLocaleString("en-US"), right, bottom + 15);
    context.textAlign = "left";
  }

  // One column per pixel, as high as the highest instruction in it.
  drawArea(context, alive, held, y) {
    context.fillStyle = colour("area");
    const base = y(held);
    const width = Math.max(1, (this.width - this.left) / this.count);
    let [column, highest] = [-1, 0];
    const flush = () => { if (column >= 0 && highest > held) context.fillRect(column, y(highest), Math.max(1, width), base - y(highest)); };
    for (let i = 0; i < alive.length; i++) {
      const at = width > 1 ? this.x(i) : Math.floor(this.x(i));
      if (at !== column) { flush(); [column, highest] = [at, 0]; }
      highest = Math.max(highest, alive[i]);
    }
    flush();
  }

  drawLine(context, y, right, label) {
    context.strokeStyle = colour("mark");
    context.setLineDash([6, 4]);
    context.beginPath(); context.moveTo(this.left, y); context.lineTo(right, y); context.stroke();
    context.setLineDash([]);
    context.fillStyle = colour("mark");
    context.textAlign = "right";
    context.fillText(label, right - 4, y + 10);
    context.textAlign = "left";
  }

  drawCursor(context, y, top, bottom) {
    const x = (this.x(this.position) + this.x(this.position + 1)) / 2;
    context.strokeStyle = colour("ink");
    context.beginPath(); context.moveTo(x, top - 6); context.lineTo(x, bottom); context.stroke();
    context.fillStyle = colour("ink");
    context.beginPath(); context.arc(x, y(this.space.alive[this.position] ?? 0), 4, 0, 7); context.fill();
  }

  // In HBM arguments, outputs and constants have their memory throughout; a buffer within another adds nothing.
  aliveAt(position) {
    const { buffers, space } = this.space;
    const found = [];
    for (let i = 0; i < buffers.bytes.length; i++) {
      const isHeld = space === "hbm" && !["temporary", "scratch"].includes(buffers.kind[i]);
      if (isHeld || (buffers.first[i] <= position && position <= buffers.last[i])) found.push(i);
    }
    return found;
  }

  moveTo(position) {
    this.position = Math.max(0, Math.min(this.count - 1, Math.round(position)));
    const found = this.aliveAt(this.position);
    const name = this.space.schedule[this.position] ?? "";
    const bytes = this.space.alive[this.position] ?? 0;
    const isPeak = bytes === this.space.peak_bytes ? ", the peak" : "";
    el("memory-at").replaceChildren(make("b", { text: sizeText(bytes) }), `${isPeak} at instruction ${(this.position + 1).toLocaleString("en-US")}`, name ? ": " : "", make("span", { class: "name", text: name }), `. ${found.length.toLocaleString("en-US")} buffers alive, ${sizeText(this.space.held_bytes)} held throughout.`);
    el("memory-buffers").replaceChildren(this.table(found));
    this.redraw();
  }

  table(found) {
    const { buffers } = this.space;
    const head = ["buffer", "size", "unpadded", "kind", "shape", "source"];
    const rows = found.slice(0, SHOWN_BUFFERS).map((i) => {
      const padded = buffers.unpadded[i] ? `${sizeText(buffers.unpadded[i])}${buffers.bytes[i] > buffers.unpadded[i] ? ` (x${trimmed(buffers.bytes[i] / buffers.unpadded[i], 3)})` : ""}` : "";
      const kind = buffers.kind[i] + (buffers.within[i] ? ` in ${buffers.within[i]}` : "");
      const cells = [buffers.name[i], sizeText(buffers.bytes[i]), padded, kind, buffers.shape[i], buffers.source[i] || buffers.op_name[i]];
      return make("tr", {}, ...cells.map((text, place) => make("td", { text: place === 5 ? ending(text, 1) : text, title: text, class: place === 0 ? "name" : place < 3 ? "number" : "" })));
    });
    if (found.length > SHOWN_BUFFERS) rows.push(make("tr", {}, make("td", { colspan: "6", text: `... and ${found.length - SHOWN_BUFFERS} smaller ones` })));
    return make("table", {}, make("thead", {}, make("tr", {}, ...head.map((text, place) => make("th", { text, scope: "col", class: place === 1 || place === 2 ? "number" : "" })))), make("tbody", {}, ...rows));
  }

  listen() {
    const at = (event) => (this.place(event)[0] - this.left) / Math.max(1, this.width - this.left - 10) * this.count - 0.5;
    this.canvas.addEventListener("pointermove", (event) => { if (this.space && !this.kept) this.moveTo(at(event)); });
    this.canvas.addEventListener("pointerenter", () => { if (!this.clicked) this.kept = false; });
    this.canvas.addEventListener("click", (event) => {
      if (!this.space) return;
      this.clicked = this.kept = !this.clicked;
      this.moveTo(at(event));
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    el("memory-peak").addEventListener("click", () => { if (this.space) { this.clicked = this.kept = true; this.moveTo(this.space.peak_position); } });
  }

  key(event) {
    if (!this.space || event.ctrlKey || event.metaKey || event.altKey) return;
    const by = event.shiftKey ? Math.max(10, Math.round(this.count / 50)) : 1;
    const places = { ArrowLeft: this.position - by, ArrowRight: this.position + by, Home: 0, End: this.count - 1, p: this.space.peak_position, P: this.space.peak_position };
    if (event.key in places) { event.preventDefault(); this.moveTo(places[event.key]); }
  }
}
