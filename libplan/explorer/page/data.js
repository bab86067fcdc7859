// What the page was given, unpacked. libplan/explorer/*.h say what the keys are.

const data = JSON.parse(byId("data").textContent);
const plans = data.plans, timelines = data.timelines;
const kIdle = -1;

/// Per row: typed arrays of start, end, type and micro-batch, and of the memory steps' times and parts.
function unpack(timeline) {
  const perTick = timeline.length / timeline.ticks;
  const ticks = timeline.types.map((type) => Math.round((type[2] / timeline.length) * timeline.ticks) || 0);
  timeline.totals = timeline.parts.map((parts) => parts.reduce((sum, part) => sum + part, 0));
  timeline.highest = timeline.totals.reduce((most, total) => Math.max(most, total), 0);
  timeline.rowOf = [];
  for (const row of timeline.rows) {
    const count = row.ops.length / 3;
    row.start = new Float64Array(count);
    row.end = new Float64Array(count);
    row.type = new Uint32Array(count);
    row.batch = new Int32Array(count);
    for (let i = 0, at = 0; i < count; ++i) {
      row.type[i] = row.ops[3 * i];
      row.batch[i] = row.ops[3 * i + 1];
      at += row.ops[3 * i + 2];
      row.start[i] = at * perTick;
      at += ticks[row.type[i]];
      row.end[i] = at * perTick;
    }
    const steps = (row.memory || []).length / 2;
    row.time = new Float64Array(steps);
    row.held = new Uint32Array(steps);
    for (let i = 0, at = 0; i < steps; ++i) {
      at += row.memory[2 * i];
      row.time[i] = at * perTick;
      row.held[i] = row.memory[2 * i + 1];
    }
    delete row.ops;
    delete row.memory;
    row.widest = row.batch.reduce((most, batch) => Math.max(most, batch), 0) + Math.max(0, ...(row.shifts || []));
    row.peak = row.held.reduce((most, part) => Math.max(most, timeline.totals[part]), 0);
    row.workers.forEach((worker) => { timeline.rowOf[worker] = row; });
  }
}
timelines.forEach(unpack);

/// The last index whose value is at most `value`; -1: none.
function lastAtMost(values, value) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1; else high = middle;
  }
  return low - 1;
}

/// The operation of the row at a time, or kIdle.
function operationAt(row, time) {
  const i = lastAtMost(row.start, time);
  return i >= 0 && time <= row.end[i] ? i : kIdle;
}

const stagesOf = (plan, worker) => plan.workers[worker].slice(3);
const nodeOf = (plan, worker) => plan.nodes[plan.workers[worker][0]];
function deviceText(plan, worker) {
  const node = nodeOf(plan, worker);
  return (node ? node + " " : "") + plan.workers[worker][1];
}

/// Colours of stages: neighbours differ, the first and the last of many do, too.
function stageColor(stage, count) {
  const hue = count <= 8 ? (200 + stage * 45) % 360 : (200 + (stage * 137.5)) % 360;
  return "hsl(" + hue.toFixed(0) + " 60% 68%)";
}
