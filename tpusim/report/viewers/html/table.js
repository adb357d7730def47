// The op table: sorted and filtered as numbers, drawn only where it is seen, so that 20,000 rows cost as much as 30.

const ROW_HEIGHT = 26;

class OpTable {
  constructor(store) {
    this.store = store;
    const total = Math.max(1, store.total_ps);
    // A row is an op, by its number, or a group of them, which has the sums.
    const at = (row, name) => typeof row === "number" ? store.ops[name][row] : row[name];
    const words = (name) => ({ text: (row) => at(row, name), key: (row) => at(row, name) });
    const figure = (name, text) => ({ text: (row) => text(at(row, name)), key: (row) => at(row, name), number: true });
    const time = (row) => at(row, "time") ? timeText(at(row, "time")) : at(row, "beside") ? `(${timeText(at(row, "beside"))})` : "0";
    this.columns = [
      { id: "name", title: "op", ...words("name"), class: "name", width: 16 },
      { id: "time", title: "time", text: time, key: (row) => at(row, "time") + at(row, "beside") * 1e-9, number: true, hint: "in parentheses: beside the core", width: 7 },
      { id: "share", title: "share", text: (row) => percentText(at(row, "time") / total), key: (row) => at(row, "time"), number: true, share: (row) => at(row, "time") / total, width: 9 },
      { id: "count", title: "count", ...figure("count", (count) => count.toLocaleString("en-US")), width: 5.5 },
      { id: "bound_by", title: "bound by", ...words("bound_by"), width: 7.5 },
      { id: "flops", title: "FLOP", ...figure("flops", countText), width: 6.5 },
      { id: "hbm_bytes", title: "HBM", ...figure("hbm_bytes", sizeText), width: 7.5 },
      { id: "energy", title: "energy", ...figure("energy", (fj) => energyText(fj / 1e15)), hint: "of its work, and of the idle power in its time", width: 6.5 },
      { id: "compiler", title: "compiler", text: (row) => at(row, "compiler") === null ? "" : usText(at(row, "compiler")), key: (row) => at(row, "compiler") ?? -1, number: true, hint: "the compiler's own estimate", width: 7 },
      { id: "category", title: "category", ...words("category"), width: 8 },
      { id: "op_name", title: "scope", ...words("op_name"), shown: (scope) => ending(scope, 2), width: 9 },
      { id: "source", title: "source", ...words("source"), shown: (source) => ending(source, 1), width: 10.5 },
    ];
    this.opened = new Set();
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
      column.head = make("th", { scope: "col", class: column.number ? "number" : "", style: { width: `${column.width}%` } }, button);
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
    for (const id of ["category", "bound", "grouping"]) el(id).addEventListener("change", () => this.apply());
    el("csv").addEventListener("click", () => this.save());
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
    this.found = found;
    this.groups = this.grouped(el("grouping").value);
    this.order();
    const time = found.reduce((sum, op) => sum + ops.time[op], 0);
    el("ops-count").textContent = `${found.length.toLocaleString("en-US")} of ${ops.tabled.toLocaleString("en-US")} ops, ${timeText(time)} (${percentText(time / Math.max(1, this.store.total_ps))}) of the core's time`;
  }

  sortBy(column) {
    const again = this.sort.column === column;
    this.sort = { column, descending: again ? !this.sort.descending : Boolean(column.number) };
    this.order();
  }

  // Ops as a tree of groups: by the parts of their scopes, or by one word.
  grouped(by) {
    if (!by) return null;
    const root = this.group("", "");
    for (const op of this.found) {
      const text = this.store.ops[by][op];
      const parts = (by === "op_name" ? text.split("/").filter(Boolean) : [text]);
      let node = root;
      for (const part of parts.length && parts[0] ? parts : ["(none)"]) {
        if (!node.inner.has(part)) node.inner.set(part, this.group(part, `${node.path}/${part}`));
        node = node.inner.get(part);
        this.count(node, op);
      }
      node.own.push(op);
    }
    return root;
  }

  group(name, path) {
    return { name, path, inner: new Map(), own: [], time: 0, beside: 0, count: 0, flops: 0, hbm_bytes: 0, energy: 0, compiler: null, bound_by: "", category: "", op_name: "", source: "" };
  }

  count(node, op) {
    const { ops } = this.store;
    for (const name of ["time", "beside", "count", "flops", "hbm_bytes", "energy"]) node[name] += ops[name][op];
    if (ops.compiler[op] !== null) node.compiler = (node.compiler ?? 0) + ops.compiler[op];
  }

  // The rows of what is opened, each level in the order of the column; scopes that only lead on are one row.
  flatten(node, depth, sorted, rows) {
    for (let inner of sorted([...node.inner.values()])) {
      let name = inner.name;
      while (inner.inner.size === 1 && !inner.own.length) {
        [inner] = inner.inner.values();
        name += `/${inner.name}`;
      }
      rows.push({ ...inner, name, depth });
      if (this.opened.has(inner.path)) this.flatten(inner, depth + 1, sorted, rows);
    }
    for (const op of sorted(node.own)) rows.push(op);
    return rows;
  }

  order() {
    const { column, descending } = this.sort;
    const sorted = (rows) => {
      const keys = new Map(rows.map((row) => [row, column.key(row)]));
      const compare = column.number ? (a, b) => keys.get(a) - keys.get(b) : (a, b) => (keys.get(a) < keys.get(b) ? -1 : keys.get(a) > keys.get(b) ? 1 : 0);
      // Ties in the order of the report, whichever way the column is sorted.
      return rows.map((row, place) => [row, place]).sort(([a, i], [b, j]) => (descending ? compare(b, a) : compare(a, b)) || i - j).map(([row]) => row);
    };
    this.rows = this.groups ? this.flatten(this.groups, 0, sorted, []) : sorted(this.found);
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
      if (column.id === "name" && this.groups) cell.append(make("span", { class: "fold", style: { marginLeft: `${(op.depth ?? 0) * 0.9}em` }, text: op.path === undefined ? "" : this.opened.has(op.path) ? "\u25be" : "\u25b8" }));
      if (column.share) cell.append(make("span", { class: "share", style: { width: `${Math.round(48 * Math.min(1, column.share(op)))}px` } }));
      cell.append(column.shown ? column.shown(text) : text);
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
    const row = this.rows[place];
    if (typeof row === "number") { this.store.select(row, this); return; }
    if (!this.opened.delete(row.path)) this.opened.add(row.path);
    const top = this.scroll.scrollTop;
    this.order();
    this.active = place;
    this.scroll.scrollTop = top;
    this.draw();
  }

  // The ops that the filters leave, in the order of the table, figures in plain units.
  csv() {
    const { ops } = this.store;
    const names = ["name", "opcode", "category", "bound_by", "count", "time", "beside", "flops", "hbm_bytes", "energy", "op_name", "source", "line"];
    const units = { time: "time_ps", beside: "beside_ps", energy: "energy_fj", line: "hlo_line" };
    const quoted = (value) => /[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
    const rows = this.groups ? this.found : this.rows;
    return [names.map((name) => units[name] ?? name), ...rows.map((op) => names.map((name) => quoted(String(ops[name][op]))))].map((cells) => `${cells.join(",")}\n`).join("");
  }

  save() {
    const link = make("a", { download: `${this.store.summary.program}.csv`, href: URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
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
