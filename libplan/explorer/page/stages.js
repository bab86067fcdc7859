// The stages over the model's layers: what each takes, holds and sends.

function shareBar(parts, full) {
  const bar = make("span", "share");
  for (const [size, color] of parts) {
    if (!(size > 0) || !(full > 0)) continue;
    const piece = make("i");
    piece.style.width = Math.min(100, (100 * size) / full) + "%";
    piece.style.background = color;
    bar.append(piece);
  }
  return bar;
}

function cell(text, css) { return make("td", css || "", text); }
function barCell(bar, text) {
  const td = make("td", "l");
  td.append(bar, " " + text);
  return td;
}

function table(titles, rows) {
  const all = make("table"), head = make("tr");
  titles.forEach(([title, css]) => head.append(make("th", css || "", title)));
  const top = make("thead"), body = make("tbody");
  top.append(head);
  body.append(...rows);
  all.append(top, body);
  const scroll = make("div", "scroll");
  scroll.append(all);
  return scroll;
}

/// Kinds that a stage takes time for per micro-batch.
const kPassKinds = ["F", "R", "B", "I", "W"];
const kindOf = (letter) => data.kinds.findIndex((kind) => kind[0] === letter);

function passTime(stage) {
  const times = stage.times || {};
  if (times.B > 0) return (times.F || 0) + times.B;
  return (times.F || 0) + (times.I || 0) + (times.W || 0);
}

function stageRow(plan, stage, s, most) {
  const row = make("tr"), times = stage.times || {};
  const split = !(times.B > 0);
  const passes = kPassKinds.filter((letter) => letter !== "R" && (letter === "F" || (letter === "B") !== split));
  const last = stage.layers[stage.layers.length - 1];
  row.append(cell(String(s)), cell(String(stage.layers.length)), cell(shortened(stage.layers[0], 28) + (stage.layers.length > 1 ? " ..\n" + shortened(last, 28) : ""), "l lines"), cell(String(stage.workers.length)));
  row.append(barCell(shareBar(passes.map((letter) => [times[letter], data.kinds[kindOf(letter)][2]]), most.pass),
    passes.filter((letter) => times[letter] > 0).map((letter) => letter + " " + seconds(times[letter])).join(", ") || "not known"));
  row.append(stage.busy > 0 ? barCell(shareBar([[stage.busy, "var(--mark)"]], most.step), seconds(stage.busy) + (plan.step > 0 ? ", " + percent(stage.busy / plan.step) : "")) : cell("-", "l"));
  const memory = stage.memory || [];
  row.append(stage.peak > 0 ? barCell(shareBar(memory.map((size, p) => [size, data.parts[p][1]]), most.memory), bytes(stage.peak) + (stage.limit > 0 ? " of " + bytes(stage.limit) : "")) : cell("-", "l"));
  row.append(cell(stage.saved > 0 ? bytes(stage.saved) : "-"), cell(stage.sends > 0 ? bytes(stage.sends) : "-"), cell(stage.again > 0 ? counted(stage.again, "layer") : "-"));
  return row;
}

function showStages(plan) {
  const place = byId("stages"), stages = plan.stages;
  const most = {
    pass: Math.max(...stages.map(passTime), 0), step: Math.max(plan.step, ...stages.map((stage) => stage.busy || 0)),
    memory: Math.max(...stages.map((stage) => Math.max((stage.memory || []).reduce((sum, size) => sum + size, 0), stage.limit > 0 && stage.limit < 2 * stage.peak ? stage.limit : 0)), 0),
  };
  const layers = make("p", "soft"), strip = make("div", "strip"), rows = [];
  const choose = (s) => {
    [...strip.children].forEach((piece, i) => piece.setAttribute("aria-pressed", String(i === s)));
    rows.forEach((row, i) => row.classList.toggle("on", i === s));
    layers.textContent = "stage " + s + ", layers: " + stages[s].layers.join(", ");
  };
  stages.forEach((stage, s) => {
    const piece = make("button", "", stages.length <= 64 ? String(s) : "");
    piece.style.flexGrow = stage.layers.length;
    piece.style.background = stageColor(s, stages.length);
    piece.setAttribute("aria-label", "stage " + s + ": " + layersText(stage.layers));
    piece.addEventListener("click", () => choose(s));
    tip.on(piece, () => ["stage " + s, layersText(stage.layers), counted(stage.workers.length, "worker") + ": " + numbersText(stage.workers), stage.peak > 0 ? "peak " + bytes(stage.peak) : "memory is not known"]);
    strip.append(piece);
    const row = stageRow(plan, stage, s, most);
    row.addEventListener("click", () => choose(s));
    rows.push(row);
  });
  layers.textContent = "Each piece is a stage, as wide as it has layers; choose one for their names.";
  place.replaceChildren(make("h2", "", counted(stages.reduce((sum, stage) => sum + stage.layers.length, 0), "layer") + " in " + counted(stages.length, "stage")), strip, layers,
    table([["stage"], ["layers"], ["from .. to", "l"], ["replicas"], ["predicted time of a micro-batch", "l"], ["predicted busy per step", "l"], ["predicted peak of a worker", "l"], ["keeps"], ["sends"], ["recomputes"]], rows));
  if (most.memory > 0) {
    const legend = make("div");
    legend.id = "stage-legend";
    data.parts.forEach(([name, color], p) => {
      if (!stages.some((stage) => (stage.memory || [])[p] > 0)) return;
      const item = make("span", "key", name + "\u2002");
      item.style.setProperty("--key", color);
      legend.append(item);
    });
    place.append(make("p", "soft", "A micro-batch keeps so much for its backward, and so much is sent to later stages. Parts of memory, the largest of each:"), legend);
  }
}
