// What a tip says of a place on the timeline, in lines.

function describe(line, index, time, inMemory) {
  if (inMemory) return heldLines(line, time);
  if (line.rows.length === 1) return index === kIdle ? idleLines(line, time) : operationLines(line, index);
  return shareLines(line, time);
}

function workersText(line) {
  if (line.workers.length === 1) return "worker " + line.workers[0] + ", " + deviceText(line.plan, line.workers[0]);
  return "workers " + numbersText(line.workers) + ", all alike; numbers are those of worker " + line.workers[0];
}

function operationLines(line, index) {
  const row = line.rows[0], [kind, stage, length] = line.timeline.types[row.type[index]];
  const [letter, name] = data.kinds[kind];
  const named = timelineView.named(line, index);
  const lines = [row.batch[index] === -2 ? name + ", several operations joined" : named ? letter + stage + "." + named.batch + " " + name : letter + " " + name];
  lines.push(seconds(row.start[index]) + " to " + seconds(row.end[index]) + ": " + seconds(length));
  lines.push(workersText(line));
  const facts = line.plan.stages[stage];
  if (!facts) return lines;
  lines.push("stage " + stage + ": " + layersText(facts.layers));
  if (letter === "F" && facts.sends > 0) lines.push("sends " + bytes(facts.sends) + " of activations");
  if ((letter === "B" || letter === "I") && facts.returns > 0) lines.push("sends back " + bytes(facts.returns) + " of gradients");
  if (letter === "F" && facts.saved > 0) lines.push("keeps " + bytes(facts.saved) + " for its backward");
  const held = heldAt(row, line.timeline, row.start[index]);
  if (held !== undefined) lines.push("the worker holds " + bytes(held));
  return lines;
}

function idleLines(line, time) {
  const row = line.rows[0], before = lastAtMost(row.start, time);
  const from = before < 0 ? 0 : row.end[before];
  const to = before + 1 < row.start.length ? row.start[before + 1] : line.timeline.length;
  return ["idle", seconds(from) + " to " + seconds(to) + ": " + seconds(Math.max(to - from, 0)), workersText(line)];
}

/// Of several rows: how many workers do what.
function shareLines(line, time) {
  const counts = new Map();
  line.rows.forEach((row, r) => {
    const i = operationAt(row, time);
    const name = i === kIdle ? "idle" : data.kinds[line.timeline.types[row.type[i]][0]][1];
    counts.set(name, (counts.get(name) || 0) + line.weights[r]);
  });
  const lines = [...counts].sort((a, b) => b[1] - a[1]).map(([name, count]) => counted(count, "worker") + ": " + name);
  return ["at " + seconds(time), ...lines, "click the name of the row to unfold it"];
}

function heldAt(row, timeline, time) {
  const i = lastAtMost(row.time, time * (1 + 1e-9));
  return i < 0 ? undefined : timeline.totals[row.held[i]];
}

function heldLines(line, time) {
  let most = null;
  for (const row of line.rows) {
    const i = lastAtMost(row.time, time);
    if (i >= 0 && (most === null || line.timeline.totals[row.held[i]] > line.timeline.totals[most.part])) most = { part: row.held[i], row };
  }
  if (!most) return ["memory is not known"];
  const lines = ["held at " + seconds(time) + ": " + bytes(line.timeline.totals[most.part])];
  line.timeline.parts[most.part].forEach((size, p) => { if (size > 0) lines.push(data.parts[p][0] + " " + bytes(size)); });
  const limit = line.plan.workers[most.row.workers[0]][2];
  if (limit > 0) lines.push("limit of the device " + bytes(limit));
  if (line.rows.length > 1) lines.push("of worker " + most.row.workers[0] + ", which holds most here");
  return lines;
}
