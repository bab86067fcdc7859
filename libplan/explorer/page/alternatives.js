// The plan and those that it was chosen from, by step and memory. A plan's document has their figures; a plan that the
// page was given has its timeline too.

const kPlot = { width: 860, height: 380, left: 84, right: 24, top: 16, bottom: 44 };

/// The plan itself, other plans that were given, and what the document says of the rest.
function pointsOf(plan) {
  const points = [{ step: plan.step, peak: plan.peak, given: plans.indexOf(plan), schedule: plan.schedule, stages: plan.stages_text, replicas: plan.replicas_text, micro_batches: plan.micro_batches, why: "chosen", name: plan.name }];
  const seen = new Set([points[0].given]);
  for (const other of plan.alternatives) {
    points.push({ ...other, given: other.shown, why: other.why_not, name: other.shown === undefined ? "" : plans[other.shown].name });
    if (other.shown !== undefined) seen.add(other.shown);
  }
  plans.forEach((other, index) => {
    if (seen.has(index) || !(other.step > 0)) return;
    const apart = other.step / plan.step - 1;
    points.push({ step: other.step, peak: other.peak, given: index, schedule: other.schedule, stages: other.stages_text, replicas: other.replicas_text, micro_batches: other.micro_batches, why: "given; " + percent(Math.abs(apart)) + (apart < 0 ? " faster" : " slower"), name: other.name });
  });
  return points.filter((point) => point.step > 0);
}

function pointLines(point, number) {
  return [number + ". " + point.schedule + ", M = " + point.micro_batches,
    "stages " + shortened(point.stages) + " on replicas " + shortened(point.replicas),
    "step " + seconds(point.step) + ", peak " + bytes(point.peak), point.why,
    point.given === undefined ? "its timeline is not in this page" : "press to see its timeline (" + point.name + ")"];
}

function pointsPicture(points, choose) {
  const { width, height, left, right, top, bottom } = kPlot;
  const svg = drawn("svg", { viewBox: "0 0 " + width + " " + height, width, height, role: "group", "aria-label": "plans by step and peak memory" });
  const axis = (values, units) => {
    const least = Math.min(...values), most = Math.max(...values);
    const room = (most - least) * 0.12 || most * 0.1 || 1;
    const unit = units.reduce((found, [size]) => (most >= size ? size : found), units[0][0]);
    const from = Math.max(0, least - room), to = most + room, step = roundStep((to - from) / unit, 5) * unit;
    return { from, to, step, share: (value) => (value - from) / (to - from) };
  };
  const x = axis(points.map((point) => point.step), kTimes), y = axis(points.map((point) => point.peak), kBytes);
  const atX = (value) => left + x.share(value) * (width - left - right), atY = (value) => height - bottom - y.share(value) * (height - top - bottom);
  for (let tick = Math.ceil(x.from / x.step); tick * x.step <= x.to; ++tick) {
    svg.append(drawn("line", { x1: atX(tick * x.step), x2: atX(tick * x.step), y1: top, y2: height - bottom, class: "grid" }));
    svg.append(drawn("text", { x: atX(tick * x.step), y: height - bottom + 18, "text-anchor": "middle", class: "soft" }, seconds(tick * x.step)));
  }
  for (let tick = Math.ceil(y.from / y.step); tick * y.step <= y.to; ++tick) {
    svg.append(drawn("line", { x1: left, x2: width - right, y1: atY(tick * y.step), y2: atY(tick * y.step), class: "grid" }));
    svg.append(drawn("text", { x: left - 8, y: atY(tick * y.step) + 4, "text-anchor": "end", class: "soft" }, bytes(tick * y.step)));
  }
  svg.append(drawn("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle", class: "soft" }, "step; left and below is better"));
  svg.append(drawn("text", { x: 4, y: 12, class: "soft" }, "peak"));
  const labels = [];
  points.forEach((point, i) => {
    const label = { x: atX(point.step) + 10, y: atY(point.peak) - 7 };
    while (labels.some((other) => Math.abs(other.x - label.x) < 16 && Math.abs(other.y - label.y) < 12)) label.x += 17;
    labels.push(label);
    const group = drawn("g", { class: point.given === undefined ? "" : "given", "aria-label": pointLines(point, i + 1).join(", ") });
    group.append(drawn("circle", { cx: atX(point.step), cy: atY(point.peak), r: i === 0 ? 8 : 6, class: "point" }));
    group.append(drawn("text", label, String(i + 1)));
    pressed(group, () => choose(point));
    tip.on(group, () => pointLines(point, i + 1));
    svg.append(group);
  });
  return svg;
}

function showAlternatives(plan) {
  const place = byId("alternatives"), points = pointsOf(plan), answer = make("p", "soft");
  answer.setAttribute("aria-live", "polite");
  if (points.length === 0) {
    place.replaceChildren(make("h2", "", "Alternatives"), make("p", "", "This plan carries no prediction, so there is nothing to compare."));
    return;
  }
  const choose = (point) => {
    if (point.given !== undefined) return page.compare([plans.indexOf(plan), point.given]);
    answer.textContent = "Of " + point.schedule + ", stages " + point.stages + " on replicas " + point.replicas + ", the plan has the figures alone. Make it with `pp-plan PROFILE .. --write-alternatives DIR` and give this page both: `pp-plan show " + plan.name + " DIR/*.json --html FILE`.";
  };
  const rows = points.map((point, i) => {
    const row = make("tr"), last = make("td", "l");
    [String(i + 1)].forEach((text) => row.append(cell(text)));
    row.append(cell(point.schedule, "l"), cell(point.stages, "l w"), cell(point.replicas, "l w"), cell(String(point.micro_batches)), cell(seconds(point.step)), cell(bytes(point.peak)), cell(point.why, "l"));
    const button = make("button", "", point.given === undefined ? "why no timeline?" : "timeline");
    button.addEventListener("click", () => choose(point));
    last.append(button);
    row.append(last);
    return row;
  });
  place.replaceChildren(make("h2", "", "The plan and its alternatives, by step and memory"),
    make("p", "soft", "Coloured points are plans that this page was given: press one for its timeline. Grey ones are known by their figures alone."),
    pointsPicture(points, choose), answer,
    table([[""], ["schedule", "l"], ["stages", "l"], ["replicas", "l"], ["M"], ["step"], ["peak"], ["why not", "l"], [""]], rows));
}
