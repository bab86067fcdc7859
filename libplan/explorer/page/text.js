"use strict";
// Elements and numbers. Texts of documents only ever become text nodes and attributes: nothing here parses markup.

const byId = (id) => document.getElementById(id);

function make(tag, css, text) {
  const element = document.createElement(tag);
  if (css) element.className = css;
  if (text !== undefined) element.textContent = text;
  return element;
}

function drawn(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  if (text !== undefined) element.textContent = text;
  return element;
}

/// What a mouse and a keyboard may press.
function pressed(element, action) {
  element.setAttribute("tabindex", "0");
  element.setAttribute("role", "button");
  element.addEventListener("click", action);
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    action(event);
  });
  return element;
}

function digits(value, count = 4) {
  if (!Number.isFinite(value)) return "-";
  return String(Number(value.toPrecision(count)));
}

function inUnit(value, units) {
  let [size, name] = units[0];
  for (const unit of units) if (Math.abs(value) >= unit[0]) [size, name] = unit;
  return digits(value / size) + " " + name;
}

const kTimes = [[1e-9, "ns"], [1e-6, "us"], [1e-3, "ms"], [1, "s"]];
const kBytes = [[1, "B"], [1024, "KiB"], [1024 ** 2, "MiB"], [1024 ** 3, "GiB"], [1024 ** 4, "TiB"]];
const seconds = (time) => (time === 0 ? "0 s" : inUnit(time, kTimes));
const bytes = (size) => inUnit(size, kBytes);
const percent = (share) => (100 * share).toFixed(1) + " %";
/// Cut in the middle: names differ at their ends.
const shortened = (text, most = 40) => (text.length > most ? text.slice(0, most / 2 - 1) + "\u2026" + text.slice(-most / 2) : text);
const counted = (count, word) => count + " " + word + (count === 1 ? "" : "s");

/// `0, 4`, `0 to 31`, `0, 4 .. 28`: ascending numbers.
function numbersText(numbers) {
  const last = numbers[numbers.length - 1];
  if (numbers.length < 3) return numbers.join(", ");
  if (last - numbers[0] + 1 === numbers.length) return numbers[0] + " to " + last;
  return numbers.length <= 6 ? numbers.join(", ") : numbers[0] + ", " + numbers[1] + " .. " + last;
}

/// `conv1 .. fc2 (6 layers)`
function layersText(layers) {
  const range = layers.length === 1 ? layers[0] : layers[0] + " .. " + layers[layers.length - 1];
  return range + (layers.length === 1 ? "" : " (" + layers.length + " layers)");
}

/// Round steps of an axis: 1, 2 or 5 times a power of ten.
function roundStep(length, most) {
  const rough = length / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
}

const tip = {
  show(lines, x, y) {
    const box = byId("tip");
    box.replaceChildren(...lines.map((line) => make("div", "", line)));
    box.hidden = false;
    const width = box.offsetWidth, height = box.offsetHeight;
    box.style.left = Math.max(4, Math.min(x + 14, innerWidth - width - 8)) + "px";
    box.style.top = (y + 16 + height > innerHeight ? Math.max(4, y - height - 10) : y + 16) + "px";
  },
  hide() { byId("tip").hidden = true; },
  /// `lines` a function; also where the keyboard is.
  on(element, lines) {
    const place = (event) => tip.show(lines(), event.clientX, event.clientY);
    element.addEventListener("pointermove", place);
    element.addEventListener("pointerleave", tip.hide);
    element.addEventListener("focus", () => {
      if (!element.matches(":focus-visible")) return;  // a mouse has its own
      const box = element.getBoundingClientRect();
      tip.show(lines(), box.right - 10, box.bottom - 10);
    });
    element.addEventListener("blur", tip.hide);
  },
};
