// The timeline on its canvas: only the lines and the time that are in sight are drawn.

const kAxis = 24;

/// Colours of the page as it is now, light or dark.
function pageColors() {
  const style = getComputedStyle(document.documentElement);
  const colors = {};
  for (const name of ["card", "ink", "soft", "line", "idle", "bad", "mark", "on"]) colors[name] = style.getPropertyValue("--" + name).trim();
  return colors;
}

const lighter = (color, share) => "#" + [1, 3, 5].map((at) => {
  const value = parseInt(color.slice(at, at + 2), 16);
  return Math.round(value + (255 - value) * share).toString(16).padStart(2, "0");
}).join("");

/// Later stages of a worker are lighter.
const boxColors = new Map();
function boxColor(line, type) {
  const stages = stagesOf(line.plan, line.workers[0]);
  const chunk = Math.max(stages.indexOf(type[1]), 0);
  const key = type[0] + " " + chunk + " " + stages.length;
  if (!boxColors.has(key))
    boxColors.set(key, lighter(data.kinds[type[0]][2], stages.length > 1 ? (0.55 * chunk) / (stages.length - 1) : 0));
  return boxColors.get(key);
}

class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
  }

  /// view: lines, first, last (seconds), scroll, left, width, height, highest (bytes), picked, chosen.
  paint(view) {
    const ratio = devicePixelRatio || 1;
    const { canvas, context } = this;
    if (canvas.width !== Math.round(view.width * ratio) || canvas.height !== Math.round(view.height * ratio)) {
      canvas.width = Math.round(view.width * ratio);
      canvas.height = Math.round(view.height * ratio);
      canvas.style.width = view.width + "px";
      canvas.style.height = view.height + "px";
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.view = view;
    this.colors = pageColors();
    this.plot = Math.max(view.width - view.left - 70, 50);
    context.fillStyle = this.colors.card;
    context.fillRect(0, 0, view.width, view.height);
    context.textBaseline = "middle";
    this.grid();
    for (const line of view.lines) {
      const y = line.y - view.scroll + kAxis;
      if (y + line.height < kAxis || y > view.height) continue;
      if (line.title !== undefined) this.title(line, y); else this.line(line, y);
    }
    this.axis();
  }

  x(time) { return this.view.left + ((time - this.view.first) / (this.view.last - this.view.first)) * this.plot; }
  time(x) { return this.view.first + ((x - this.view.left) / this.plot) * (this.view.last - this.view.first); }

  text(text, x, y, color, font, room) {
    const { context } = this;
    context.font = font;
    context.fillStyle = color;
    if (room !== undefined && context.measureText(text).width > room) {
      let keep = text.length;
      while (keep > 4 && context.measureText(text.slice(0, keep) + "\u2026").width > room) keep = Math.floor(keep * 0.9);
      text = text.slice(0, keep) + "\u2026";
    }
    context.fillText(text, x, y);
  }

  title(line, y) {
    const timeline = line.timeline;
    let text = line.title + " \u2014 ";
    if (timeline.step > 0) text += "step " + seconds(timeline.step) + ", bubble " + percent(timeline.bubble) + ", ";
    text += counted(timeline.operations, "operation") + " in " + seconds(timeline.length);
    if (timeline.joined > 0) text += ", those below " + seconds(timeline.joined) + " joined";
    this.context.textAlign = "left";
    this.text(text, 8, y + 16, this.colors.ink, "600 13px system-ui,sans-serif", this.view.width - 16);
  }

  /// Names at the left, the share of idle time at the right, boxes and memory between.
  line(line, y) {
    const { context, view, colors } = this;
    if (view.chosen === line) {
      context.fillStyle = colors.on;
      context.fillRect(0, y - 2, view.width, line.height - 2);
    }
    context.textAlign = "left";
    const indent = line.inside ? 24 : 8, room = view.left - indent - 8;
    const both = line.band > 0 || line.box >= 26;
    this.text(line.name, indent, y + (both ? 8 : line.box / 2), colors.ink, "12px system-ui,sans-serif", room);
    if (both) this.text(line.under, indent, y + 22, colors.soft, "11px system-ui,sans-serif", room);
    const left = view.left, end = Math.min(this.x(line.timeline.length), left + this.plot);
    context.save();
    context.beginPath();
    context.rect(left, y, this.plot, line.height);
    context.clip();
    context.fillStyle = colors.idle;
    context.globalAlpha = 0.7;  // the grid shines through
    context.fillRect(Math.max(left, this.x(0)), y, end - Math.max(left, this.x(0)), line.box);
    context.globalAlpha = 1;
    if (line.rows.length === 1) this.boxes(line, y); else this.shares(line, y);
    if (line.band > 0) this.memory(line, y + line.box + 5, end);
    context.restore();
    const busy = line.rows.reduce((sum, row, i) => sum + row.busy * line.weights[i], 0) / Math.max(line.workers.length, 1);
    this.text("idle " + percent(line.timeline.length > 0 ? 1 - busy / line.timeline.length : 0), left + this.plot + 6, y + line.box / 2, colors.soft, "11px system-ui,sans-serif");
    if (line.band > 0) {
      const peak = line.rows.reduce((most, row) => Math.max(most, row.peak), 0);
      this.text(bytes(peak), left + this.plot + 6, y + line.box + line.band / 2 + 5, colors.soft, "11px system-ui,sans-serif");
    }
  }

  /// The operations of one row; those thinner than a pixel as shares.
  boxes(line, y) {
    const { context, view } = this;
    const row = line.rows[0], types = line.timeline.types;
    const coverage = new Coverage(this, line);
    const shift = row.shifts ? row.shifts[row.workers.indexOf(line.workers[0])] : 0;
    const picked = view.picked && view.picked.timeline === line.timeline ? view.picked.batch : undefined;
    for (let i = Math.max(lastAtMost(row.start, view.first), 0); i < row.start.length && row.start[i] <= view.last; ++i) {
      const x = this.x(row.start[i]), width = this.x(row.end[i]) - x, type = types[row.type[i]];
      if (width < 1) {
        coverage.add(type[0], row.start[i], row.end[i], 1);
        continue;
      }
      const batch = row.batch[i] < 0 ? row.batch[i] : row.batch[i] + shift;
      context.globalAlpha = picked !== undefined && batch !== picked ? 0.28 : 1;
      context.fillStyle = boxColor(line, type);
      context.fillRect(x, y, width > 4 ? width - 0.8 : width, line.box);
      this.label(line, type, row.batch[i] < 0 ? row.batch[i] : batch, x, width, y);
    }
    context.globalAlpha = 1;
    coverage.draw(y, line.box);
  }

  label(line, type, batch, x, width, y) {
    if (width < 9) return;
    const { context } = this;
    const left = Math.max(x, this.view.left), right = Math.min(x + width, this.view.left + this.plot);
    const letter = data.kinds[type[0]][0];
    const forms = batch === -2 ? [] : batch === -1 ? [letter] : [letter + type[1] + "." + batch, letter + batch, String(batch)];
    if (stagesOf(line.plan, line.workers[0]).length < 2 && batch >= 0) forms.shift();  // the name of the line has it
    context.font = "11px system-ui,sans-serif";
    // All boxes of one width have one form: that which holds the longest number.
    const longer = String(line.rows[0].widest).length - String(Math.max(batch, 0)).length;
    const form = forms.find((text) => context.measureText(text + "0".repeat(Math.max(longer, 0))).width + 3 < right - left);
    if (form === undefined) return;
    context.fillStyle = "#000";
    context.textAlign = "center";
    context.fillText(form, (left + right) / 2, y + line.box / 2 + 0.5);
    context.textAlign = "left";
  }

  /// Several rows in one line: which share of the workers does what.
  shares(line, y) {
    const coverage = new Coverage(this, line), types = line.timeline.types;
    line.rows.forEach((row, r) => {
      const weight = line.weights[r] / line.workers.length;
      for (let i = Math.max(lastAtMost(row.start, this.view.first), 0); i < row.start.length && row.start[i] <= this.view.last; ++i)
        coverage.add(types[row.type[i]][0], row.start[i], row.end[i], weight);
    });
    coverage.draw(y, line.box);
  }

  /// What the worker of the line that holds most holds, by part.
  memory(line, y, end) {
    const { context, view } = this;
    const columns = Math.ceil(this.plot), held = new Int32Array(columns).fill(-1);
    const { totals, parts } = line.timeline;
    for (const row of line.rows) {
      for (let i = Math.max(lastAtMost(row.time, view.first), 0); i < row.time.length && row.time[i] <= view.last; ++i) {
        const from = Math.max(0, Math.floor(this.x(row.time[i]) - view.left));
        const until = i + 1 < row.time.length ? this.x(row.time[i + 1]) : end;
        const to = Math.min(columns, Math.max(from + 1, Math.ceil(until - view.left)));
        for (let c = from; c < to; ++c) if (held[c] < 0 || totals[row.held[i]] > totals[held[c]]) held[c] = row.held[i];
      }
    }
    for (let c = 0; c < columns;) {
      let next = c + 1;
      while (next < columns && held[next] === held[c]) ++next;
      if (held[c] >= 0) this.stack(parts[held[c]], view.left + c, next - c, y, line.band);
      c = next;
    }
    const limit = line.plan.workers[line.workers[0]][2];
    if (limit > 0 && limit <= view.highest) {
      context.fillStyle = this.colors.bad;
      for (let x = view.left; x < view.left + this.plot; x += 8) context.fillRect(x, y + line.band * (1 - limit / view.highest), 5, 1);
    }
  }

  stack(parts, x, width, y, height) {
    let base = y + height;
    parts.forEach((part, p) => {
      const high = (part / this.view.highest) * height;
      if (high <= 0) return;
      this.context.fillStyle = data.parts[p][1];
      this.context.fillRect(x, base - high, width, high);
      base -= high;
    });
  }

  /// Of the axis: the distance of its lines and their places.
  ticks() {
    const step = roundStep(this.view.last - this.view.first, Math.max(this.plot / 90, 2)), places = [];
    for (let tick = Math.ceil(this.view.first / step - 1e-9); tick * step <= this.view.last * (1 + 1e-12); ++tick) places.push(tick * step);
    return [step, places];
  }

  grid() {
    this.context.fillStyle = this.colors.line;
    for (const place of this.ticks()[1]) this.context.fillRect(this.x(place), kAxis - 4, 1, this.view.height);
  }

  axis() {
    const { context, view, colors } = this;
    context.fillStyle = colors.card;
    context.fillRect(0, 0, view.width, kAxis - 4);
    const [step, places] = this.ticks();
    const [size, unit] = kTimes.reduce((found, next) => (step * 5 >= next[0] ? next : found), kTimes[0]);
    const decimals = Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9));
    context.textAlign = "center";
    for (const place of places) this.text((place / size).toFixed(decimals), this.x(place), kAxis / 2 - 2, colors.soft, "11px system-ui,sans-serif");
    context.textAlign = "left";
    this.text(unit, view.left + this.plot + 6, kAxis / 2 - 2, colors.soft, "11px system-ui,sans-serif");
  }
}

/// Per pixel and kind the share of time that is busy.
class Coverage {
  constructor(painter, line) {
    this.painter = painter;
    this.line = line;
    this.columns = Math.ceil(painter.plot);
    this.kinds = new Map();
  }

  add(kind, start, end, weight) {
    if (!this.kinds.has(kind)) this.kinds.set(kind, new Float32Array(this.columns));
    const shares = this.kinds.get(kind), left = this.painter.view.left;
    const from = Math.max(0, this.painter.x(start) - left), to = Math.min(this.columns, this.painter.x(end) - left);
    for (let c = Math.floor(from); c < to; ++c) shares[c] += weight * (Math.min(to, c + 1) - Math.max(from, c));
  }

  /// Kinds on top of each other, from the bottom; equal neighbours are one box.
  draw(y, height) {
    const { context, view } = this.painter;
    const base = new Float32Array(this.columns);
    for (const [kind, shares] of [...this.kinds].sort((a, b) => a[0] - b[0])) {
      context.fillStyle = data.kinds[kind][2];
      for (let c = 0; c < this.columns;) {
        const share = shares[c], below = base[c];
        let next = c + 1;
        while (next < this.columns && Math.abs(shares[next] - share) < 0.01 && Math.abs(base[next] - below) < 0.01) ++next;
        if (share > 0) context.fillRect(view.left + c, y + height * (1 - below - share), next - c, height * share);
        for (; c < next; ++c) base[c] += shares[c];
      }
    }
  }
}
