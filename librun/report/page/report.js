// The tabs of a report's page, filled when the explorer's script is there: `data.reports` are the documents without
// their plans, long lists thinned, with what the summary says (html.cpp). Their texts only ever become text nodes.
addEventListener("DOMContentLoaded", () => {
  const kColors = 8, reports = data.reports, several = reports.length > 1;
  const kUnits = { number: [[1, ""]], share: [[0.01, "%"]], seconds: kTimes, bytes: kBytes };
  const element = (name, css, ...inside) => {
    const made = make(name, css);
    made.append(...inside);
    return made;
  };
  const soft = (text) => make("p", "soft", text);
  const rowsTable = (titles, rows, texts) => table(titles.map((title, i) => [title, i < texts ? "l" : ""]),
    rows.map((row) => element("tr", "", ...row.map((one, i) => element("td", i < texts ? "l" : "", one)))));

  function fill(name, parts) {
    const place = document.querySelector("[data-report=" + name + "]");
    if (place) place.append(...parts);
  }
  /// What `parts` makes of each report, under its name where there are several; empty ones are left out.
  const ofEach = (parts) => reports.flatMap((report, r) => {
    const made = parts(report, plans[r]);
    return several && made.length > 0 ? [make("h2", "", report.name), ...made] : made;
  });

  /// A bar between two shares of its length.
  function bar(from, to, css) {
    const filled = make("i");
    filled.style.left = 100 * from + "%";
    filled.style.width = 100 * (to - from) + "%";
    return element("span", css, filled);
  }
  /// From its middle to the left below 1 and to the right above it; half and double fill it.
  function ratioCell(ratio) {
    if (!(ratio > 0) || !Number.isFinite(ratio)) return "-";
    const end = 0.5 + Math.max(-1, Math.min(1, Math.log2(ratio))) / 2;
    return element("span", "", digits(ratio) + " ", bar(Math.min(end, 0.5), Math.max(end, 0.5), ratio > 1 ? "bar two over" : "bar two"));
  }

  // --- curves over the run

  const first = (report) => (report.resumed_from ? report.resumed_from.step : 0);
  const kChart = { width: 480, height: 230, top: 10, right: 14, bottom: 38, left: 58 };

  /// Points are [step, value]; `most`: what goes above it leaves the picture; 0: all of it is in.
  function chart({ title, unit, curves, levels = [], fromZero = false, most = 0, note = "" }) {
    const finite = curves.map((curve) => ({ ...curve, points: curve.points.filter((point) => point.every(Number.isFinite)).map(([x, y]) => [x, Math.max(-1e100, Math.min(1e100, y))]) }));
    const points = finite.flatMap((curve) => curve.points);
    if (points.length === 0) return [];
    const range = (values) => [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
    const heights = [...points.map(([, y]) => (most > 0 ? Math.min(y, most) : y)), ...levels.map((level) => level.value), ...(fromZero ? [0] : [])];
    let [low, high] = range(heights);
    if (high <= low) [low, high] = [low - (Math.abs(low) * 0.1 || 1e-12), high + (Math.abs(high) * 0.1 || 1e-12)];
    const [size, name] = kUnits[unit].reduce((found, one) => (Math.max(Math.abs(low), Math.abs(high)) >= 2 * one[0] ? one : found));
    const step = roundStep((high - low) / size, 4) * size, bottom = Math.floor(low / step + 1e-9) * step, top = Math.ceil(high / step - 1e-9) * step;
    const [left, last] = range([...points.map(([x]) => x), ...reports.flatMap((report) => [first(report), first(report) + report.steps])]);
    const right = Math.max(last, left + 1), tick = Math.max(1, roundStep(right - left, 5));
    const atX = (x) => kChart.left + ((x - left) / (right - left)) * (kChart.width - kChart.right - kChart.left);
    const atY = (y) => kChart.height - kChart.bottom - Math.max(0, Math.min(1, (y - bottom) / (top - bottom))) * (kChart.height - kChart.bottom - kChart.top);
    const svg = drawn("svg", { viewBox: "0 0 " + kChart.width + " " + kChart.height, role: "img", "aria-label": title });
    const text = (x, y, anchor, words) => svg.append(drawn("text", { x, y, "text-anchor": anchor, class: "soft" }, words));
    const line = (y, css) => svg.append(drawn("line", { x1: kChart.left, x2: kChart.width - kChart.right, y1: atY(y), y2: atY(y), class: css }));
    for (let i = Math.round(bottom / step); i * step <= top + step / 2; ++i) {
      line(i * step, "grid");
      text(kChart.left - 6, atY(i * step) + 4, "end", digits((i * step) / size));
    }
    for (let at = Math.ceil(left / tick) * tick; at <= right; at += tick) text(atX(at), kChart.height - kChart.bottom + 17, "middle", digits(at));
    text((kChart.left + kChart.width - kChart.right) / 2, kChart.height - 5, "middle", "step");
    levels.forEach((level) => line(level.value, "level dashed c" + level.color));
    for (const curve of finite) {
      if (curve.points.length > 1) svg.append(drawn("path", { d: "M" + curve.points.map(([x, y]) => atX(x).toFixed(2) + " " + atY(y).toFixed(2)).join("L"), class: "curve c" + curve.color }));
      if (!curve.dots && curve.points.length > 1) continue;
      for (const [x, y] of curve.points) {
        const dot = drawn("rect", { x: atX(x) - 2.5, y: atY(y) - 2.5, width: 5, height: 5, class: "dot c" + curve.color });
        tip.on(dot, () => [curve.name, "step " + digits(x) + ": " + digits(y / size) + " " + name]);
        svg.append(dot);
      }
    }
    const keys = [...finite.map((curve) => make("span", "key c" + curve.color, curve.name)), ...levels.map((level) => make("span", "key dashed c" + level.color, level.name))];
    const caption = title + (name ? ", " + name : "") + (note ? " (" + note + ")" : "");
    return [element("figure", "chart", make("figcaption", "", caption), element("div", "keys", ...keys), svg)];
  }

  /// Several reports have a colour each; of one each curve has.
  const colorOf = (r, ofCurve) => (several ? r % kColors : ofCurve);
  const nameIn = (report, curve) => (several ? report.name + ": " + curve : curve);
  const curve = (r, name, color, points) => ({ name: nameIn(reports[r], name), color: colorOf(r, color), points, dots: false });
  const dotted = (r, name, color, list, step, key) => ({ ...curve(r, name, color, list.map((one) => [one[step], one[key]])), dots: list.length <= 40 });
  /// Of the evaluations by steps where there are any, else of the epochs.
  const tests = (report, r, key) => ((report.evaluations || []).length > 0 ? dotted(r, "test", 1, report.evaluations, "step", key) : dotted(r, "test", 1, report.epochs, "last_step", key));
  /// Sample i of the history, at the step where it ends.
  const overSteps = (report, values) => values.map((value, i) => [first(report) + Math.min(report.history.steps, report.history.steps_per_sample * (i + 1)), value]);

  const kCharts = [
    () => chart({ title: "Loss", unit: "number", curves: reports.flatMap((report, r) => {
      const steps = curve(r, "of a step", 5, report.step_losses);
      if (several) return [steps];
      const epochs = report.epochs.length > 1 ? [dotted(r, "training, of an epoch", 0, report.epochs, "last_step", "train_loss")] : [];
      return [steps, ...epochs, tests(report, r, "test_loss")].filter((one) => one.points.length > 0);
    }) }),
    () => chart({ title: "Accuracy on the test set", unit: "share", curves: reports.map((report, r) => tests(report, r, "test_accuracy")) }),
    () => {
      const curves = reports.map((report, r) => curve(r, "measured", 0, overSteps(report, report.history.step_s)));
      const levels = reports.flatMap((report, r) => (plans[r].step > 0 ? [{ name: nameIn(report, "predicted"), value: plans[r].step, color: colorOf(r, 0) }] : []));
      // First steps fill caches and pools: where they take many times what the others take, the axis ends above these.
      const largest = (values) => values.reduce((a, b) => Math.max(a, b), 0);
      const others = largest([...levels.map((level) => level.value), ...curves.flatMap((one) => one.points.slice(1).map(([, y]) => y))]);
      const firsts = largest(curves.flatMap((one) => one.points.slice(0, 1).map(([, y]) => y)));
      const above = others > 0 && firsts > 1.5 * others;
      return chart({ title: "Step time", unit: "seconds", fromZero: true, curves, levels, most: above ? others : 0, note: above ? "the first goes up to " + seconds(firsts) : "" });
    },
    () => {
      const title = "Peak memory of a step";
      if (several) {
        const highest = (report) => report.history.step_s.map((_, i) => Math.max(...report.history.peak_bytes.map((worker) => worker[i])));
        return chart({ title: title + ", of the worker that holds most", unit: "bytes", fromZero: true, curves: reports.map((report, r) => curve(r, "peak", 0, overSteps(report, highest(report)))) });
      }
      const report = reports[0], all = report.history.peak_bytes.map((_, w) => w);
      const shown = all.length <= kColors ? all : [...all].sort((a, b) => report.workers[b].peak_bytes - report.workers[a].peak_bytes).slice(0, kColors).sort((a, b) => a - b);
      return chart({ title: title + (shown.length < all.length ? ", of the workers that hold most" : ""), unit: "bytes", fromZero: true,
        curves: shown.map((w, c) => curve(0, "worker " + w, c, overSteps(report, report.history.peak_bytes[w]))),
        levels: shown.flatMap((w, c) => (report.promised[w].peak_bytes > 0 ? [{ name: "worker " + w + " predicted", value: report.promised[w].peak_bytes, color: c }] : [])) });
    },
  ];

  // --- tables

  const ms = (time) => (time > 0 ? digits(1e3 * time) : "-");
  const size = (count) => (count > 0 ? bytes(count) : "-");

  fill("curves", kCharts.flatMap((make) => make()));
  fill("operations", ofEach((report) => [
    rowsTable(["stage", "operation", "count", "predicted ms", "measured ms", "measured / predicted"], report.op_times.map((row) => {
      const kind = data.kinds[kindOf(row.kind)];
      return [row.kind === "ARg" ? "-" : String(row.stage), kind ? kind[1] : row.kind, String(row.count), ms(row.predicted_s), ms(row.median_s), ratioCell(row.median_s / row.predicted_s)];
    }), 2),
    rowsTable(["worker", "stage", "instruction", "predicted ms", "measured ms", "measured / predicted"], (report.instructions || []).map((row) =>
      [String(row.worker), String(row.stage), row.instruction.replaceAll("_", " "), ms(row.predicted_s), ms(row.median_s), ratioCell(row.median_s / row.predicted_s)]), 3),
    soft("instructions: their time in a step, waiting included, so that those of a worker add up to its step"),
    ...report.why.map(soft), soft("times of one operation, measured: the median; bars are full at half and at double")]));
  fill("workers", ofEach((report, plan) => [
    rowsTable(["worker", "device", "busy ms, predicted", "measured", "bubble", "peak, predicted", "measured", "limit", "in flight", "versions", "sent per step"], report.workers.map((worker) => {
      const promised = report.promised[worker.id];
      return [String(worker.id), deviceText(plan, worker.id), ms(promised.busy_s), ms(worker.busy_s),
        element("span", "", bar(0, worker.bubble_fraction, "bar"), " " + percent(worker.bubble_fraction)), size(promised.peak_bytes), bytes(worker.peak_bytes), size(plan.workers[worker.id][2]),
        String(worker.peak_in_flight), String(worker.peak_versions), bytes(worker.sent_bytes_per_step)];
    }), 2), ...report.slow.map(soft)]));
  fill("starts", ofEach((report) => {
    const lost = report.lost_attempts || [];
    if (lost.length === 0) return [];
    const rows = lost.map((one) => [one.how, one.first_step, one.steps_done, seconds(one.seconds), one.to_next_s === undefined ? "-" : seconds(one.to_next_s), one.plan || "", one.hosts || ""]);
    rows.push([report.exit_reason, first(report), first(report) + report.steps, "-", "-", "as above", ""]);
    return [rowsTable(["start", "ended by", "from step", "to step", "time", "to the next", "plan", "hosts"], rows.map((row, i) => [String(i + 1), ...row.map(String)]), 8)];
  }));
  fill("epochs", ofEach((report) => {
    const kMost = 100, shown = report.epochs.slice(-kMost);
    if (shown.length === 0) return [];
    const rows = shown.map((epoch) => [String(epoch.epoch), String(epoch.last_step), digits(epoch.train_loss ?? NaN), digits(epoch.test_loss ?? NaN), epoch.test_accuracy === undefined ? "-" : percent(epoch.test_accuracy), digits(epoch.samples_per_s), epoch.evaluation_s > 0 ? seconds(epoch.evaluation_s) : "-"]);
    const note = shown.length < report.epoch_count ? [soft("the last " + shown.length + (report.epochs.length < report.epoch_count ? " of those shown above, of " : " of ") + report.epoch_count)] : [];
    return [rowsTable(["epoch", "last step", "training loss", "test loss", "test accuracy", "samples per second", "evaluated in"], rows, 0), ...note];
  }));
  fill("settings", ofEach((report) => {
    const said = (value) => (value === true ? "yes" : value === false ? "no" : typeof value === "number" ? digits(value, 12) : value);
    const facts = (title, rows) => element("div", "facts", make("h3", "", title), rowsTable([], rows.map(([name, value]) => [name, String(said(value))]), 2));
    return [element("div", "columns", facts("Settings", [["seed", report.seed], ...Object.entries(report.settings)]), facts("Machine", Object.entries(report.context))), soft(report.about)];
  }));
});
