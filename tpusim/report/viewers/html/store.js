// The data of the page: unpacked once into typed arrays; which op is selected, and who wants to know.

async function unpack(packed) {
  if (typeof DecompressionStream === "undefined") throw new Error("this browser cannot unpack the data: it needs DecompressionStream (any browser from 2023 on)");
  const characters = atob(packed.trim());
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

function summed(differences) {
  const found = new Float64Array(differences.length);
  let sum = 0;
  for (let i = 0; i < differences.length; i++) found[i] = sum += differences[i];
  return found;
}

function added(starts, lengths) {
  const found = new Float64Array(starts.length);
  for (let i = 0; i < starts.length; i++) found[i] = starts[i] + lengths[i];
  return found;
}

// Transfers on one row overlap: each goes to the first lane that is free.
function lanes(row) {
  const until = [];
  row.lane = new Uint16Array(row.start.length);
  for (let i = 0; i < row.start.length; i++) {
    let lane = until.findIndex((end) => end <= row.start[i]);
    if (lane < 0) lane = until.length;
    until[lane] = row.end[i];
    row.lane[i] = lane;
  }
  row.lanes = Math.max(1, until.length);
}

class Store {
  constructor(data) {
    Object.assign(this, data);
    const text = (column) => column.map((number) => data.texts[number]);
    for (const name of ["name", "opcode", "category", "bound_by", "op_name", "source"]) this.ops[name] = text(data.ops[name]);
    for (const device of this.devices) for (const row of device.rows) {
      row.start = summed(row.start);
      row.end = added(row.start, row.length);
      if (row.label === "core") { row.lanes = 1; row.lane = null; } else lanes(row);
    }
    for (const space of this.memory) {
      space.schedule = text(space.schedule);
      space.alive = summed(space.alive);
      for (const name of ["name", "kind", "shape", "op_name", "source", "within"]) space.buffers[name] = text(space.buffers[name]);
      space.buffers.last = added(space.buffers.first, space.buffers.length);
    }
    this.selected = -1;
    this.listeners = [];
    this.colours = this.categoryColours();
  }

  categoryColours() {
    const order = this.summary.categories.map((category) => category.category);
    return new Map(order.map((name, place) => [name, Math.min(place, 8)]));
  }

  colourOf(op) {
    return this.colours.get(this.ops.category[op]) ?? 8;
  }

  // An op takes as long as the core spends on it; what runs beside the core, as long as it runs.
  timeOf(op) {
    return op < this.ops.tabled ? this.ops.time[op] || this.ops.beside[op] : 0;
  }

  onSelect(listener) {
    this.listeners.push(listener);
  }

  select(op, from) {
    this.selected = op;
    for (const listener of this.listeners) listener(op, from);
  }
}
