// The cluster: devices in nodes, nodes that hold the same stages folded into one, and the traffic among them.

const cluster = { open: new Set(), chosen: null };

/// Boxes in sight: groups of alike nodes, unfolded into nodes, unfolded into workers.
function boxesOf(plan) {
  const nodes = plan.nodes.map((name, index) => ({ index, name, workers: [], stages: new Set() }));
  plan.workers.forEach((worker, w) => {
    nodes[worker[0]].workers.push(w);
    stagesOf(plan, w).forEach((stage) => nodes[worker[0]].stages.add(stage));
  });
  const groups = new Map();
  for (const node of nodes) {
    const key = [...node.stages].sort((a, b) => a - b).join(",") + "|" + node.workers.length;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(node);
  }
  const workerBoxes = (node) => node.workers.map((w) => ({ name: deviceText(plan, w), under: "worker " + w, workers: [w], stages: new Set(stagesOf(plan, w)), parent: "n" + node.index }));
  const nodeBoxes = (node) => (cluster.open.has("n" + node.index) ? workerBoxes(node)
    : [{ name: node.name || "this machine", under: counted(node.workers.length, "worker"), workers: node.workers, stages: node.stages, key: "n" + node.index, nodes: [node.index] }]);
  return [...groups.entries()].flatMap(([key, members]) => (members.length === 1 || cluster.open.has("g" + key) ? members.flatMap(nodeBoxes)
    : [{ name: members.length + " nodes", under: members[0].name + " .. " + members[members.length - 1].name, workers: members.flatMap((node) => node.workers), stages: members[0].stages, key: "g" + key, nodes: members.map((node) => node.index) }]));
}

/// Bytes per step between boxes: [from, to] -> bytes; within a box they are its own.
function trafficOf(plan, boxes) {
  const ofWorker = [], ofNode = [];
  boxes.forEach((box, b) => {
    box.workers.forEach((worker) => { ofWorker[worker] = b; });
    (box.nodes || []).forEach((node) => { ofNode[node] = b; });
    box.inside = 0;
  });
  const sums = new Map();
  for (const [from, to, size] of plan.links) {
    const a = from < 0 ? ofNode[-1 - from] : ofWorker[from], b = to < 0 ? ofNode[-1 - to] : ofWorker[to];
    if (a === undefined || b === undefined) continue;
    if (a === b) { boxes[a].inside += size; continue; }
    const key = a * boxes.length + b;
    sums.set(key, (sums.get(key) || 0) + size);
  }
  return [...sums].map(([key, size]) => ({ from: Math.floor(key / boxes.length), to: key % boxes.length, size })).sort((a, b) => b.size - a.size);
}

/// The innermost level that joins two workers.
function levelOf(plan, a, b) {
  const group = (worker, level) => Math.floor(plan.slots[worker] / level[1]);
  return plan.levels.find((level) => group(a, level) === group(b, level)) || plan.levels[plan.levels.length - 1];
}

const kBox = { width: 122, height: 74, across: 34, down: 58, columns: 8 };
const kMostLines = 400, kMostBelow = 4;

/// Column and line of each box, and how many of both: a column holds the boxes of the same stages, and columns run to
/// and fro, so that neighbours in the pipeline are neighbours here.
function placesOf(boxes) {
  const columnOf = new Map(), heights = [];
  const ids = boxes.map((box) => {
    const key = [...box.stages].sort((a, b) => a - b).join(",");
    if (!columnOf.has(key)) columnOf.set(key, columnOf.size);
    const id = columnOf.get(key);
    heights[id] = (heights[id] || 0) + 1;
    return [id, heights[id] - 1];
  });
  const columns = Math.min(kBox.columns, heights.length), tops = [0];
  if (Math.max(...heights) > kMostBelow) {  // too high: line by line
    const across = Math.min(kBox.columns, boxes.length);
    const places = boxes.map((_, b) => [Math.floor(b / across) % 2 ? across - 1 - (b % across) : b % across, Math.floor(b / across)]);
    return [places, across, Math.ceil(boxes.length / across)];
  }
  for (let from = 0; from < heights.length; from += columns) tops.push(tops[tops.length - 1] + Math.max(...heights.slice(from, from + columns)));
  const places = ids.map(([id, below]) => {
    const band = Math.floor(id / columns), along = id % columns;
    return [band % 2 ? columns - 1 - along : along, tops[band] + below];
  });
  return [places, columns, tops[tops.length - 1]];
}

function clusterPicture(plan, boxes, traffic) {
  const [places, columns, lines] = placesOf(boxes);
  const width = columns * (kBox.width + kBox.across) + 8, height = lines * (kBox.height + kBox.down) + 30;
  const svg = drawn("svg", { viewBox: "0 0 " + width + " " + height, width, height, role: "group", "aria-label": "devices and their traffic" });
  const place = (b) => [8 + places[b][0] * (kBox.width + kBox.across), 36 + places[b][1] * (kBox.height + kBox.down)];
  const most = traffic.length > 0 ? traffic[0].size : 1;
  for (const link of traffic.slice(0, kMostLines).reverse()) {
    const [x1, y1] = place(link.from), [x2, y2] = place(link.to);
    const forward = link.from < link.to;
    // Within a line above the boxes or below them; from line to line from edge to edge.
    const beside = forward ? -9 : 9, same = y1 === y2;
    const edge = (y, other) => y + ((same ? forward : other < y) ? 0 : kBox.height);
    const ax = x1 + kBox.width / 2 + beside, bx = x2 + kBox.width / 2 + beside, ay = edge(y1, y2), by = edge(y2, y1);
    const bend = same ? (forward ? -1 : 1) * Math.min(16 + Math.abs(bx - ax) * 0.08, 40) : (by - ay) / 2;
    const path = drawn("path", { d: "M" + ax + " " + ay + "C" + ax + " " + (ay + bend) + " " + bx + " " + (same ? by + bend : by - bend) + " " + bx + " " + by, class: "link", "stroke-width": Math.max(1, 7 * Math.sqrt(link.size / most)).toFixed(1) });
    tip.on(path, () => [boxes[link.from].name + " to " + boxes[link.to].name, bytes(link.size) + " per step" + (plan.step > 0 ? ", " + bytes(link.size / plan.step) + "/s" : "")]);
    svg.append(path);
  }
  boxes.forEach((box, b) => {
    const [x, y] = place(b), group = drawn("g", { class: box.key || box.parent ? "open" : "" });
    group.append(drawn("rect", { x, y, width: kBox.width, height: kBox.height, rx: 8, class: "box" }));
    const stages = [...box.stages].sort((a, c) => a - c), piece = (kBox.width - 16) / Math.max(stages.length, 1);
    stages.forEach((stage, s) => group.append(drawn("rect", { x: x + 8 + s * piece, y: y + 46, width: Math.max(piece - 1, 0.5), height: 8, fill: stageColor(stage, plan.stages.length) })));
    group.append(drawn("text", { x: x + 8, y: y + 18 }, shortened(box.name)), drawn("text", { x: x + 8, y: y + 34, class: "soft" }, box.under));
    group.append(drawn("text", { x: x + 8, y: y + 67, class: "soft" }, stages.length === 0 ? "no stage" : (stages.length === 1 ? "stage " : "stages ") + numbersText(stages)));
    group.setAttribute("aria-label", box.name + ", " + box.under);
    if (box.key || box.parent) pressed(group, () => {
      if (box.key) cluster.open.add(box.key); else cluster.open.delete(box.parent);
      showCluster(plan);
    });
    tip.on(group, () => [box.name, box.under, stages.length === 1 ? stagesText(plan, stages) : "stages " + numbersText(stages),
      box.inside > 0 ? bytes(box.inside) + " per step among its workers" : "no messages within", box.key ? "press to unfold it" : box.parent ? "press to fold its node" : ""].filter((text) => text));
    svg.append(group);
  });
  return svg;
}

/// The busiest links; of single workers with the share of the step that they are occupied.
function linkTable(plan, boxes, traffic) {
  const rows = traffic.slice(0, 30).map((link) => {
    const row = make("tr"), from = boxes[link.from], to = boxes[link.to];
    row.append(cell(from.under + ", " + from.name, "l"), cell(to.under + ", " + to.name, "l"), cell(bytes(link.size)));
    const level = levelOf(plan, from.workers[0], to.workers[to.workers.length - 1]);
    const single = from.workers.length === 1 && to.workers.length === 1;
    row.append(cell(level ? level[0] + (level[2] > 0 ? ", " + digits(level[2] / 1e9) + " GB/s" : "") : "-", "l"));
    row.append(cell(single && level && level[2] > 0 && plan.step > 0 ? percent(link.size / level[2] / plan.step) : "-"));
    return row;
  });
  return table([["from", "l"], ["to", "l"], ["per step"], ["link", "l"], ["of the step"]], rows);
}

function showCluster(plan) {
  if (cluster.plan !== plan) {
    cluster.plan = plan;
    cluster.open = new Set(plan.workers.length <= 16 ? plan.nodes.map((_, index) => "n" + index) : []);
  }
  const boxes = boxesOf(plan), traffic = trafficOf(plan, boxes), place = byId("cluster");
  const fold = make("button", "", "fold all");
  fold.addEventListener("click", () => { cluster.open.clear(); showCluster(plan); });
  const all = make("p", "soft", "Messages between workers in one step, as wide as they are many; activations above or left, gradients below or right. All-reduces among replicas are not in it. ");
  all.append(fold);
  place.replaceChildren(make("h2", "", counted(plan.workers.length, "worker") + " on " + counted(plan.nodes.length, "node")), all, clusterPicture(plan, boxes, traffic));
  if (traffic.length > kMostLines) place.append(make("p", "soft", "drawn are the " + kMostLines + " busiest of " + traffic.length + " connections"));
  if (traffic.length > 0) place.append(make("h3", "", traffic.length > 30 ? "The 30 busiest connections" : "Connections"), linkTable(plan, boxes, traffic));
  else place.append(make("p", "", "No messages: every worker runs the whole model, or the plan has no prediction."));
}
