// The head of the page: figures, bars, warnings, the selected op, and what devices and links did together.

function card(label, value, note = "") {
  return make("div", { class: "card" }, make("span", { text: label }), make("b", { text: value }), make("span", { text: note }));
}

// The mean error of what was measured, each kind of kernel by its share of the time.
function accuracyCard(bands) {
  const measured = bands.filter((band) => band.rows);
  const share = measured.reduce((sum, band) => sum + band.share, 0);
  const error = measured.reduce((sum, band) => sum + band.share * band.error, 0) / Math.max(1e-9, share);
  return share ? card("accuracy", `\u00b1 ${percentText(error)} for ${percentText(share)} of the time`, "mean error of measured kernels; not measured for the rest") : card("accuracy", "unknown", "no kernels of these kinds were measured on this chip");
}

function bars(target, rows, fill = () => "") {
  if (!rows.length) { target.replaceChildren(make("p", { class: "muted", text: "nothing" })); return; }
  target.replaceChildren(...rows.map(([name, share, note], place) => make("div", { class: "bar", title: note ?? "" },
    make("span", { class: "name", text: name, title: name }),
    make("div", { class: "track", "aria-hidden": "true" }, make("div", { class: "fill", style: { width: `${Math.min(100, 100 * share)}%`, background: fill(place) } })),
    make("span", { class: "value", text: percentText(share) }))));
}

function showSummary(store) {
  const { summary, capacity } = store;
  el("program").textContent = summary.program;
  const device = summary.devices_run > 1 ? `, device ${summary.device} of ${summary.devices_run}, the first of those that ended last` : "";
  el("machine").textContent = `on ${summary.chip} (${store.chip})${device}`;
  const total = Math.max(1e-9, summary.time_us);
  const memory = summary.memory;
  const estimate = summary.compiler_estimated_us;
  el("cards").replaceChildren(
    card("time", timeText(store.total_ps), estimate ? `compiler's estimate of its kernels ${usText(estimate)}` : ""),
    accuracyCard(summary.accuracy),
    card("bound by", summary.bound_by || "nothing", `${summary.kernels.toLocaleString("en-US")} kernels`),
    card("roofline", percentText(summary.roofline_us / total), `at least ${usText(summary.roofline_us)}`),
    card("MFU", percentText(summary.model_flops_utilization), hardware(summary)),
    card("HBM bandwidth", percentText(summary.hbm_utilization), `${sizeText(summary.hbm_bytes)} moved`),
    card("energy", energyOf(summary), summary.cost ? `${dollarsText(summary.cost.usd)} at ${dollarsText(summary.cost.usd_per_chip_hour)} a chip-hour` : ""),
    card("mean power", `${trimmed(summary.average_power_w)} W`, `${trimmed(summary.energy.chip_power_w)} W a chip`),
    card("peak HBM", sizeText(memory.peak_hbm_bytes), `of ${sizeText(capacity.hbm)}`),
    card("peak VMEM", sizeText(memory.peak_vmem_bytes), `of ${sizeText(capacity.vmem)}`),
  );
  const bound = Object.entries(summary.bound_us).map(([name, time]) => [name || "nothing", time / total, usText(time)]);
  bars(el("bounds"), bound.slice(0, 10));
  const units = Object.entries(summary.unit_utilization).filter(([unit]) => unit !== "hbm").map(([unit, share]) => [store.units[unit] ?? unit, share]);
  bars(el("units"), [...units, ["HBM", summary.hbm_utilization]].sort((a, b) => b[1] - a[1]));
  const energy = Object.entries(summary.energy.by_unit).sort((a, b) => b[1] - a[1]);
  bars(el("energy"), energy.map(([unit, joules]) => [store.units[unit] ?? unit, joules / Math.max(1e-18, summary.energy_j), energyText(joules)]));
  const categories = summary.categories.slice(0, 12);
  bars(el("categories"), categories.map((one) => [one.category, one.time_us / total, `${one.count.toLocaleString("en-US")} times, ${usText(one.time_us)}, beside the core ${usText(one.overlapped_us)}`]), (place) => `var(--c${store.colours.get(categories[place].category)})`);
  showNotes(store);
  el("footer").textContent = `Simulated by ${`tpusim ${store.version}`.trim()}: times, traffic and utilisation come from a model of the chip, not from hardware.`;
}

// Of a slice that of a device, to which all else on the page belongs, and that of all devices, as the cost is.
function energyOf(summary) {
  const all = summary.all_devices_energy_j;
  return energyText(summary.energy_j) + (all === undefined ? "" : ` a device, ${energyText(all)} in all`);
}

function hardware(summary) {
  const again = summary.flops_utilization !== summary.model_flops_utilization;
  const types = summary.peak_types;
  return `of ${types.join(" and ") || "bf16"} peak${types.length > 1 ? "s" : ""}, ${countText(summary.flops)}FLOP${again ? `, HFU ${percentText(summary.flops_utilization)} with what is computed again or not asked for` : ""}`;
}

function showNotes(store) {
  const { summary } = store;
  const family = (band) => `${band.kind === "other" ? "all else" : `${band.kind} kernels`} (${percentText(band.share)} of the time)`;
  const notes = summary.accuracy.map((band) => band.rows
    ? `Accuracy: ${family(band)} off by ${percentText(band.error)} on average in ${band.rows} measured rows of this chip${band.of ? ` (${band.of})` : ""}.`
    : `Accuracy: ${family(band)} not measured ${store.compiled ? "with programs like this one" : "on this chip"}.`);
  const warnings = [...(store.compiled ? [`Compiled ${store.compiled}.`] : []), ...summary.warnings];
  for (const item of summary.unsupported) warnings.push(`Estimated: ${item.name} (${item.opcode}): ${item.estimate}`);
  if (store.left_out) warnings.push(`The time line leaves out ${store.left_out} kinds of devices that do not fit this page; --trace has them.`);
  el("notes").replaceChildren(...notes.map((text) => make("p", { class: "muted", text })), ...warnings.map((text) => make("p", { class: "notice", text })));
}

function showDetails(store, op) {
  const { ops } = store;
  const tabled = op < ops.tabled;
  const facts = [["name", ops.name[op]], ["opcode", ops.opcode[op]], ["category", ops.category[op]]];
  if (tabled) {
    const seconds = ops.time[op] / 1e12;
    facts.push(["time", `${timeText(ops.time[op])} (${percentText(ops.time[op] / Math.max(1, store.total_ps))})`], ["executions", ops.count[op].toLocaleString("en-US")]);
    if (ops.beside[op]) facts.push(["beside the core", timeText(ops.beside[op])]);
    facts.push(["bound by", ops.bound_by[op]], ["work", `${countText(ops.flops[op])}FLOP`], ["HBM traffic", sizeText(ops.hbm_bytes[op])], ["energy", energyText(ops.energy[op] / 1e15)]);
    if (seconds && ops.flops[op]) facts.push(["rate", rateText(ops.flops[op] / seconds, "FLOP")]);
    if (seconds && ops.hbm_bytes[op]) facts.push(["HBM rate", rateText(ops.hbm_bytes[op] / seconds, "B")]);
    const { added, slack } = pathOf(store);
    if (added.has(op)) facts.push(["on the critical path", `adds ${timeText(added.get(op))}`]);
    if (slack.has(op)) facts.push(["could start later by", timeText(slack.get(op))]);
    if (ops.compiler[op] !== null) facts.push(["compiler's estimate", usText(ops.compiler[op])]);
  }
  facts.push(["scope", ops.op_name[op]], ["HLO line", ops.line[op] ? String(ops.line[op]) : ""]);
  const list = facts.filter(([, value]) => value).map(([name, value]) => make("div", {}, make("dt", { text: name }), make("dd", { text: value, class: name === "name" ? "name" : "" })));
  if (ops.source[op]) list.push(sourceFact(ops.source[op]));
  const { tiles, hlo, reads, read_by: readBy } = store.details[op] ?? {};
  const parts = [make("dl", { class: "facts" }, ...list)];
  if (tiles) parts.push(...tileParts(tiles));
  if (hlo) parts.push(make("h3", { text: "HLO" }), make("pre", { class: "hlo", text: hlo, tabindex: 0, "aria-label": "HLO of the op" }));
  if (reads?.length) parts.push(neighbours(store, "reads", reads));
  if (readBy?.length) parts.push(neighbours(store, "read by", readBy));
  el("details").replaceChildren(...parts);
}

// A click shows all ops of the line in the table; a file with its whole path can be opened as well.
function sourceFact(source) {
  const button = make("button", { type: "button", class: "link", text: source, title: "Show all ops of this line in the table", onclick: () => {
    el("search").value = source;
    el("search").dispatchEvent(new Event("input"));
    el("ops").scrollIntoView();
  } });
  const opened = source.startsWith("/") ? [" ", make("a", { href: encodeURI(`file:${source.replace(/:\d+$/, "")}`), text: "open" })] : [];
  return make("div", {}, make("dt", { text: "source" }), make("dd", {}, button, ...opened));
}

// What one tile takes each unit and memory, and what operands move.
function tileParts(tiles) {
  const count = tiles.count.toLocaleString("en-US");
  const about = [`${count} tile${tiles.count > 1 ? "s" : ""}`, tiles.cores > 1 ? `on ${tiles.cores} cores` : "", tiles.loops && `(${tiles.loops})`, tiles.between ? `with ${tiles.between.toLocaleString("en-US")} cycles between two of them` : ""];
  const most = Math.max(1e-9, ...tiles.cycles.map(([, cycles]) => cycles));
  const rows = make("div", { class: "tiles" });
  bars(rows, tiles.cycles.map(([name, cycles]) => [name, cycles / most, `${cycles.toLocaleString("en-US")} cycles`]));
  rows.querySelectorAll(".value").forEach((value, place) => { value.textContent = tiles.cycles[place][1].toLocaleString("en-US"); });
  const moved = make("div", { class: "scrolled" });
  plainTable(moved, ["moves", "memory", "block", "times", "total"], tiles.moves.map(([name, out, memory, block, times, total]) => [`${name} (${out ? "out" : "in"})`, memory, sizeText(block), times.toLocaleString("en-US"), sizeText(total)]));
  const stages = tiles.stages.length > 1 ? [make("p", { class: "muted small", text: `In each tile ${tiles.stages.length} stages, one after another: ${tiles.stages.map(([name, cycles]) => `${name} ${cycles.toLocaleString("en-US")}`).join(", then ")} cycles.` })] : [];
  return [make("h3", { text: "Tiles" }), make("p", { class: "small", text: `${about.filter(Boolean).join(" ")}.` }), ...stages,
    make("div", { class: "columns" }, make("div", {}, make("p", { class: "muted small", text: "cycles of one tile, by unit and memory" }), rows), moved)];
}

function neighbours(store, label, names) {
  const numbers = store.numbers ??= new Map(store.ops.name.map((name, op) => [name, op]));
  const each = (name) => numbers.has(name) ? make("button", { type: "button", class: "link name", text: name, onclick: () => store.select(numbers.get(name)) }) : make("span", { class: "name muted", text: name });
  return make("p", { class: "small neighbours" }, make("b", { text: `${label} ` }), ...names.flatMap((name) => [each(name), " "]));
}

// By op what it adds to the time of the run, and how much later it could start for nothing.
function pathOf(store) {
  return store.onPath ??= { added: new Map(store.path.ops.map(([op, time]) => [op, time])), slack: new Map(store.path.slack) };
}

function showPath(store) {
  const { path } = store;
  const name = (op) => typeof op === "number" ? store.ops.name[op] : op;
  const beside = path.ops.reduce((sum, [, time, , row]) => sum + (row === "core" ? 0 : time), 0);
  const through = path.devices.length > 1 ? ` It goes through devices ${path.devices.join(", ")}, the last one last.` : "";
  el("path-about").textContent = `What the end of device ${path.device} waits for, back to its start: ${percentText(beside / Math.max(1, store.total_ps))} of the time is waiting for what runs beside the core.${through}`;
  plainTable(el("path-ops"), ["op", "adds", "share", "count"], path.ops.slice(0, 200).map(([op, time, count]) => [name(op), timeText(time), percentText(time / Math.max(1, store.total_ps)), count.toLocaleString("en-US")]));
  plainTable(el("path-slack"), ["op", "by"], path.slack.slice(0, 200).map(([op, slack]) => [name(op), timeText(slack)]));
  plainTable(el("path-hidden"), ["transfer", "behind", "for"], path.hidden.map(([one, behind, time]) => [one, behind, timeText(time)]));
}

// What is different from another run: figures of both, then ops and categories, most change first.
function showCompared(store) {
  const { compared, summary } = store;
  if (!compared) return;
  el("compared").hidden = el("compared-link").hidden = false;
  el("compared-about").textContent = `Before: ${compared.program} on ${compared.chip} (simulated); now: ${summary.program} on ${summary.chip}.`;
  const figures = [["time", usText, compared.time_us, summary.time_us], ["FLOP", countText, compared.flops, summary.flops], ["HBM traffic", sizeText, compared.hbm_bytes, summary.hbm_bytes], ["energy of a device", energyText, compared.energy_j, summary.energy_j], ["peak HBM", sizeText, compared.peak_hbm_bytes, summary.memory.peak_hbm_bytes]];
  plainTable(el("compared-figures"), ["", "before", "now", "now / before"], figures.filter(([, , before]) => before).map(([name, text, before, now]) => [name, text(before), text(now), (now / before).toFixed(3)]));
  const signed = (value) => `${value > 0 ? "+" : "\u2212"}${usText(Math.abs(value))}`;
  const rows = (changes, named) => changes.map(([name, category, before, now]) => [name, ...(named ? [category] : []), before === null ? "\u2013" : usText(before), now === null ? "\u2013" : usText(now), signed((now ?? 0) - (before ?? 0))]);
  plainTable(el("compared-ops"), ["op", "category", "before", "now", "change"], rows(compared.ops, true));
  plainTable(el("compared-categories"), ["category", "before", "now", "change"], rows(compared.categories, false));
}

function plainTable(target, titles, rows) {
  if (!rows.length) { target.replaceChildren(make("p", { class: "muted", text: "none" })); return; }
  const numeric = (place) => place ? "number" : "";
  target.replaceChildren(make("table", {},
    make("thead", {}, make("tr", {}, ...titles.map((text, place) => make("th", { text, scope: "col", class: numeric(place) })))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text, place) => make("td", { text, title: text, class: numeric(place) })))))));
}

function showPod(store) {
  const { pod } = store;
  if (!pod) return;
  el("pod").hidden = el("pod-link").hidden = false;
  el("pod-about").textContent = `${pod.device_count} devices on ${pod.sizes.join("x")} chips${pod.slices > 1 ? `, ${pod.slices} slices` : ""}, numbered ${pod.device_order === "ring" ? "along a ring of neighbours" : "in listed order"}; ${pod.links.used} links carried something, ${percentText(pod.links.mean_share)} of the time on average.`;
  const who = (devices) => devices.length > 4 ? `${devices.slice(0, 3).join(", ")}, ... (${devices.length})` : devices.join(", ");
  plainTable(el("pod-devices"), ["devices", "time", "compute", "exposed", "hidden", "waiting"], pod.devices.map((one) => [who(one.devices), usText(one.total_us), usText(one.compute_us), usText(one.exposed_us), usText(one.hidden_us), usText(one.waiting_us)]));
  plainTable(el("pod-links"), ["link", "bytes", "busy", "share"], pod.busiest_links.map(([chip, way, bytes, busy]) => [`chip ${chip} ${way}`, sizeText(bytes), timeText(busy), percentText(busy / Math.max(1, store.total_ps))]));
  plainTable(el("pod-collectives"), ["collective", "kind", "group", "count", "bytes", "time each", "waiting", "algbw", "busbw"], pod.collectives.map((one) => [one.name, one.kind, String(one.group_size), one.count.toLocaleString("en-US"), sizeText(one.payload_bytes), usText(one.time_us / one.count), usText(one.waiting_us / one.count), rateText(one.algorithm_bytes_per_second, "B"), rateText(one.bus_bytes_per_second, "B")]));
}
