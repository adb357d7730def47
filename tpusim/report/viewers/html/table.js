// The op table: sorted and filtered as numbers, drawn only where it is seen, so that 20,000 rows cost as much as 30.

const ROW_HEIGHT = 26;

class OpTable {
  constructor(store) {
    this.store = store;
    const { ops } = store;
    const total = Math.max(1, store.total_ps);
    const time = (op) => ops.time[op] ? timeText(ops.time[op]) : ops.beside[op] ? `(${timeText(ops.beside[op])})` : "0";
    this.columns = [
      { id: "name", title: "op", text: (op) => ops.name[op], key: (op) => ops.name[op], class: "name" },
      { id: "time", title: "time", text: time, key: (op) => ops.time[op] + ops.beside[op] * 1e-9, number: true, hint: "in parentheses: beside the core" },
      { id: "share", title: "share", text: (op) => percentText(ops.time[op] / total), key: (op) => ops.time[op], number: true, share: (op) => ops.time[op] / total },
      { id: "count", title: "count", text: (op) => ops.count[op].toLocaleString("en-US"), key: (op) => ops.count[op], number: true },
      { id: "bound_by", title: "bound by", text: (op) => ops.bound_by[op], key: (op) => ops.bound_by[op] },
      { id: "flops", title: "FLOP", text: (op) => countText(ops.flops[op]), key: (op) => ops.flops[op], number: true },
      { id: "hbm_bytes", title: "HBM", text: (op) => sizeText(ops.hbm_bytes[op]), key: (op) => ops.hbm_bytes[op], number: true },
      { id: "energy", title: "energy", text: (op) => energyText(ops.energy[op] / 1e15), key: (op) => ops.energy[op], number: true, hint: "of its work, and of the idle power in its time" },
      { id: "compiler", title: "compiler", text: (op) => ops.compiler[op] === null ? "" : timeText(ops.compiler[op] * 1e6), key: (op) => ops.compiler[op] ?? -1, number: true, hint: "the compiler's own estimate" },
      { id: "category", title: "category", text: (op) => ops.category[op], key: (op) => ops.category[op] },
      { id: "op_name", title: "scope", text: (op) => ops.op_name[op], key: (op) => ops.op_name[op] },
      { id: "source", title: "source", text: (op) => ops.source[op], key: (op) => ops.source[op] },
    ];
    this.sort = { column: this.columns[1], descending: true };
    this.active = 0;
    this.scroll = el("ops-scroll");
    this.body = el("ops-table").tBodies[0];
    this.buildHead();
    this.buildFilters();
    this.listen();
    this.apply();
  }

  buildHead() {
    const row = make("tr");
    for (const column of this.columns) {
      const button = make("button", { type: "button", text: column.title, title: column.hint ? `Sort; ${column.hint}` : "Sort", onclick: () => this.sortBy(column) });
      column.head = make("th", { scope: "col", class: column.number ? "number" : "" }, button);
      column.button = button;
      row.append(column.head);
    }
    el("ops-table").tHead.replaceChildren(row);
    el("ops-table").setAttribute("aria-colcount", this.columns.length);
  }

  buildFilters() {
    for (const [id, name, title] of [["category", "category", "All categories"], ["bound", "bound_by", "Bound by anything"]]) {
      const values = [...new Set(this.store.ops[name].slice(0, this.store.ops.tabled))].sort();
      el(id).replaceChildren(make("option", { value: "", text: title }), ...values.map((value) => make("option", { value, text: value || "(none)" })));
    }
  }

  listen() {
    el("search").addEventListener("input", () => this.apply());
    for (const id of ["category", "bound"]) el(id).addEventListener("change", () => this.apply());
    this.scroll.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.scroll);
    this.scroll.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-place]");
      if (row) this.choose(Number(row.dataset.place));
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) { event.preventDefault(); el("search").focus(); }
    });
    this.store.onSelect((op, from) => { if (from !== this) this.reveal(op); else this.draw(); });
  }

  // All words must occur somewhere: in the name, the category, the scope or the source line.
  apply() {
    const { ops } = this.store;
    this.text ??= Array.from({ length: ops.tabled }, (_, op) => `${ops.name[op]} ${ops.opcode[op]} ${ops.category[op]} ${ops.op_name[op]} ${ops.source[op]}`.toLowerCase());
    const words = el("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const [category, bound] = [el("category").value, el("bound").value];
    const found = [];
    for (let op = 0; op < ops.tabled; op++) {
      if (category && ops.category[op] !== category) continue;
      if (bound && ops.bound_by[op] !== bound) continue;
      if (words.every((word) => this.text[op].includes(word))) found.push(op);
    }
    this.rows = found;
    this.order();
    const time = found.reduce((sum, op) => sum + ops.time[op], 0);
    el("ops-count").textContent = `${found.length.toLocaleString("en-US")} of ${ops.tabled.toLocaleString("en-US")} ops, ${timeText(time)} (${percentText(time / Math.max(1, this.store.total_ps))}) of the core's time`;
  }

  sortBy(column) {
    const again = this.sort.column === column;
    this.sort = { column, descending: again ? !this.sort.descending : Boolean(column.number) };
    this.order();
  }

  order() {
    const { column, descending } = this.sort;
    const keys = new Map(this.rows.map((op) => [op, column.key(op)]));
    const compare = column.number ? (a, b) => keys.get(a) - keys.get(b) : (a, b) => (keys.get(a) < keys.get(b) ? -1 : keys.get(a) > keys.get(b) ? 1 : 0);
    // Ties in the order of the report, whichever way the column is sorted.
    this.rows.sort((a, b) => (descending ? compare(b, a) : compare(a, b)) || a - b);
    for (const other of this.columns) {
      const sorted = other === column;
      other.head.setAttribute("aria-sort", sorted ? (descending ? "descending" : "ascending") : "none");
      other.button.textContent = other.title + (sorted ? (descending ? " \u25be" : " \u25b4") : "");
    }
    this.active = 0;
    this.scroll.scrollTop = 0;
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW_HEIGHT) - 4);
    const last = Math.min(this.rows.length, first + Math.ceil(this.scroll.clientHeight / ROW_HEIGHT) + 8);
    const rows = [this.spacer(first)];
    for (let place = first; place < last; place++) rows.push(this.row(place));
    rows.push(this.spacer(this.rows.length - last));
    this.body.replaceChildren(...rows);
    el("ops-table").setAttribute("aria-rowcount", this.rows.length + 1);
    el("ops-table").setAttribute("aria-activedescendant", `op-row-${this.active}`);
  }

  spacer(count) {
    return make("tr", { "aria-hidden": "true", style: { height: `${count * ROW_HEIGHT}px` } });
  }

  row(place) {
    const op = this.rows[place];
    const state = [op === this.store.selected ? "selected" : "", place === this.active ? "active" : ""].join(" ").trim();
    const row = make("tr", { "data-place": place, id: `op-row-${place}`, "aria-rowindex": place + 2, "aria-selected": op === this.store.selected, class: state });
    for (const column of this.columns) {
      const text = column.text(op);
      const cell = make("td", { class: [column.class ?? "", column.number ? "number" : ""].join(" ").trim(), title: text });
      if (column.share) cell.append(make("span", { class: "share", style: { width: `${Math.round(48 * Math.min(1, column.share(op)))}px` } }));
      cell.append(text);
      row.append(cell);
    }
    return row;
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.scroll.clientHeight / ROW_HEIGHT) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      event.preventDefault();
      this.activate(Math.max(0, Math.min(this.rows.length - 1, this.active + steps[event.key])));
    } else if (event.key === "Enter" && this.rows.length) {
      event.preventDefault();
      this.choose(this.active);
    }
  }

  activate(place) {
    this.active = place;
    const [top, head] = [place * ROW_HEIGHT, 30];
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    else if (top + ROW_HEIGHT + head > this.scroll.scrollTop + this.scroll.clientHeight) this.scroll.scrollTop = top + ROW_HEIGHT + head - this.scroll.clientHeight;
    this.draw();
  }

  choose(place) {
    this.active = place;
    this.store.select(this.rows[place], this);
  }

  // Scrolls to an op that was chosen elsewhere, if the filters show it.
  reveal(op) {
    const place = this.rows.indexOf(op);
    if (place >= 0) this.activate(place); else this.draw();
  }

  filterCategory(name) {
    el("category").value = el("category").value === name ? "" : name;
    this.apply();
  }
}
