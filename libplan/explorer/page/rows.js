// The lines of the timeline: workers, or folded into one line those of the same stages or of one node.

const kOpenNode = "\u25be ", kClosedNode = "\u25b8 ";

/// Groups of the plan's workers: key, name, and the workers, in the order of their first worker.
function groupsOf(plan, fold) {
  const groups = new Map();
  plan.workers.forEach((_, worker) => {
    const stages = stagesOf(plan, worker);
    const key = fold === "stage" ? stages.join(",") : fold === "node" ? plan.workers[worker][0] : worker;
    if (!groups.has(key)) groups.set(key, { key: fold + key, stages: new Set(), workers: [], node: nodeOf(plan, worker) });
    const group = groups.get(key);
    group.workers.push(worker);
    stages.forEach((stage) => group.stages.add(stage));
  });
  return [...groups.values()];
}

function stagesText(plan, stages) {
  const list = [...stages].sort((a, b) => a - b);
  if (list.length === 0) return "no stage";
  if (list.length > 1) return "stages " + numbersText(list);
  const layers = plan.stages[list[0]].layers;
  return "stage " + list[0] + ": " + (layers.length === 1 ? layers[0] : layers[0] + " .. " + layers[layers.length - 1]);
}

function workerLine(timeline, plan, worker, inside) {
  const row = timeline.rowOf[worker];
  return {
    timeline, plan, worker, workers: [worker], rows: row ? [row] : [], weights: [1], inside,
    name: stagesText(plan, stagesOf(plan, worker)), under: "worker " + worker + ", " + deviceText(plan, worker),
  };
}

/// Rows of the group's workers, each with how many of them it stands for.
function groupLine(timeline, plan, group, fold, open) {
  const rows = new Map();
  for (const worker of group.workers) {
    const row = timeline.rowOf[worker];
    if (row) rows.set(row, (rows.get(row) || 0) + 1);
  }
  const what = fold === "node" ? "node " + (group.node || "(the only one)") : stagesText(plan, group.stages);
  const count = fold === "node" ? counted(group.workers.length, "worker") : counted(group.workers.length, "replica");
  return {
    timeline, plan, key: group.key, open, workers: group.workers, rows: [...rows.keys()], weights: [...rows.values()],
    name: (open ? kOpenNode : kClosedNode) + what,
    under: count + (fold === "node" ? ", " + stagesText(plan, group.stages) : ": workers " + numbersText(group.workers)),
  };
}

/// All lines from the top down, with `y` and `height`. `open` holds the keys of unfolded groups.
function linesOf(shown, fold, open, memory) {
  const lines = [];
  for (const timeline of shown) {
    const plan = plans[timeline.plan];
    lines.push({ timeline, plan, title: timeline.name, rows: [], workers: [] });
    for (const group of groupsOf(plan, fold)) {
      if (group.workers.length === 1) {
        lines.push(workerLine(timeline, plan, group.workers[0], false));
        continue;
      }
      lines.push(groupLine(timeline, plan, group, fold, open.has(group.key)));
      if (open.has(group.key)) group.workers.forEach((worker) => lines.push(workerLine(timeline, plan, worker, true)));
    }
  }
  const many = lines.length > 40;
  let y = 0;
  for (const line of lines) {
    line.y = y;
    line.box = many ? 18 : 26;
    line.band = memory && line.timeline.highest > 0 ? (many ? 20 : 30) : 0;
    line.height = line.title !== undefined ? 30 : line.box + line.band + (line.band ? 16 : 8);
    y += line.height;
  }
  return { lines, height: y };
}

/// As folded as it takes to look at; a plan of few workers as it is.
function firstFold(plan) {
  if (plan.workers.length <= 8) return "worker";
  return groupsOf(plan, "stage").length <= 96 ? "stage" : "node";
}
