// Quantities in units that keep them readable, and small helpers for elements. Text is only ever set as text.

const el = (id) => document.getElementById(id);

function trimmed(number, digits = 3) {
  return Number(number.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 12 });
}

// In the smallest unit in which what is rounded is not one of the next; floats may come out a little less than that.
function scaled(number, steps, digits) {
  const rounded = (least) => Number((Math.abs(number) / least).toPrecision(digits)) * least;
  let place = steps.length - 1;
  while (place > 0 && rounded(steps[place][0]) >= steps[place - 1][0] * (1 - 1e-9)) place--;
  const [least, unit] = steps[place];
  return `${trimmed(number / least, digits)} ${unit}`;
}

const timeText = (ps, digits = 4) => ps === 0 ? "0" : scaled(ps, [[1e12, "s"], [1e9, "ms"], [1e6, "us"], [1e3, "ns"], [1, "ps"]], digits);
const usText = (us) => timeText(us * 1e6);
const sizeText = (bytes) => bytes === 0 ? "0 B" : scaled(bytes, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]], 4);
const countText = (n) => n === 0 ? "0" : scaled(n, [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]], 4).trim();
const energyText = (joules) => joules === 0 ? "0 J" : scaled(joules, [[1e9, "GJ"], [1e6, "MJ"], [1e3, "kJ"], [1, "J"], [1e-3, "mJ"], [1e-6, "uJ"], [1e-9, "nJ"]], 3);
const dollarsText = (usd) => `$${usd >= 1 ? usd.toFixed(2) : trimmed(usd)}`;
const rateText = (n, unit) => `${countText(n)}${/[A-Za-z]$/.test(countText(n)) ? "" : " "}${unit}/s`;
const percentText = (share) => `${(100 * share).toFixed(1)} %`;
const intensityText = (n) => `${trimmed(n, 4)} FLOP/B`;

// The last parts of a path, which tell more than the first ones.
function ending(path, parts) {
  const found = path.split("/");
  return found.length > parts ? `\u2026/${found.slice(-parts).join("/")}` : path;
}

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (name === "class") node.className = value;
    else if (name === "style") Object.assign(node.style, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function showTip(x, y, text) {
  const tip = el("tip");
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18}px`;
}

function hideTip() {
  el("tip").hidden = true;
}
