// The timeline as one uses it: zoom, pan, fold, point at an operation, by mouse and by keys.

const kNearest = 1e4;  // so many times the whole, at most
const kHint = "wheel: zoom \u00b7 drag: move \u00b7 press the name of a folded row to unfold it \u00b7 keys: arrows, + - 0, Enter, comma and full stop";

const timelineView = {
  lines: [], first: 0, last: 1, length: 1, scroll: 0, left: 230, width: 0, height: 0, highest: 1,
  picked: null, chosen: null, fold: "worker", open: new Set(), shown: timelines.slice(0, 1), waiting: false,

  start() {
    this.canvas = byId("canvas");
    this.painter = new Painter(this.canvas);
    if (timelines.length > 0) this.fold = firstFold(plans[timelines[0].plan]);
    byId("fold").value = this.fold;
    byId("fold").addEventListener("change", (event) => { this.fold = event.target.value; this.open.clear(); this.layOut(); });
    byId("memory").addEventListener("change", () => this.layOut());
    byId("nearer").addEventListener("click", () => this.zoom(0.5));
    byId("farther").addEventListener("click", () => this.zoom(2));
    byId("whole").addEventListener("click", () => this.fit());
    byId("scroller").addEventListener("scroll", () => this.paint());
    new ResizeObserver(() => this.layOut()).observe(byId("scroller"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
    this.listen();
    byId("status").textContent = timelines.length > 0 ? kHint : "There is no timeline: no operation was recorded.";
    this.show(timelines.slice(0, 4));
  },

  /// These timelines, one above the other, on one axis and one scale.
  show(shown) {
    this.shown = shown;
    this.length = Math.max(1e-12, ...shown.map((timeline) => timeline.length));
    this.choices();
    this.legend();
    this.fit();
    this.layOut();
  },

  choices() {
    if (timelines.length < 2) return;
    byId("shown").replaceChildren(...timelines.map((timeline) => {
      const label = make("label"), box = make("input");
      box.type = "checkbox";
      box.checked = this.shown.includes(timeline);
      box.addEventListener("change", () => this.show(timelines.filter((other) => (other === timeline ? box.checked : this.shown.includes(other)))));
      label.append(box, " " + timeline.name);
      return label;
    }));
  },

  legend() {
    const key = (name, color) => {
      const item = make("span", "key", name);
      item.style.setProperty("--key", color);
      return item;
    };
    const kinds = new Set(this.shown.flatMap((timeline) => timeline.types.map((type) => type[0])));
    const parts = new Set(this.shown.flatMap((timeline) => timeline.parts.flatMap((sizes) => sizes.map((size, p) => (size > 0 ? p : -1)))));
    byId("legend").replaceChildren(
      ...[...kinds].sort((a, b) => a - b).map((kind) => key(data.kinds[kind][0] + " " + data.kinds[kind][1], data.kinds[kind][2])),
      ...data.parts.filter((_, p) => parts.has(p)).map(([name, color]) => key("memory: " + name, color)));
  },

  /// Lines, sizes and scales anew.
  layOut() {
    const scroller = byId("scroller");
    const chosen = this.chosen && (this.chosen.key || this.chosen.worker);
    const { lines, height } = linesOf(this.shown, this.fold, this.open, byId("memory").checked);
    this.lines = lines;
    this.chosen = chosen === null ? null : lines.find((line) => line.key === chosen || line.worker === chosen) || null;
    byId("spacer").style.height = height + kAxis + 8 + "px";
    this.width = scroller.clientWidth;
    this.height = Math.max(scroller.clientHeight, 60);
    this.left = Math.round(Math.min(250, this.width * 0.3));
    const most = this.shown.reduce((highest, timeline) => Math.max(highest, timeline.highest), 1);
    const limits = this.shown.flatMap((timeline) => plans[timeline.plan].workers.map((worker) => worker[2]));
    this.highest = limits.reduce((highest, limit) => (limit > highest && limit <= 2 * most ? limit : highest), most);
    this.paint();
  },

  paint() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.scroll = byId("scroller").scrollTop;
      if (this.width > 0) this.painter.paint(this);
    });
  },

  fit() { this.first = 0; this.last = this.length; this.paint(); },

  /// By a factor of the length that is seen, around a time.
  zoom(factor, around = (this.first + this.last) / 2) {
    const length = Math.min(this.length, Math.max(this.length / kNearest, (this.last - this.first) * factor));
    const share = (around - this.first) / (this.last - this.first);
    this.first = around - share * length;
    this.last = this.first + length;
    this.move(0);
  },

  /// By a share of the length that is seen.
  move(share) {
    const length = this.last - this.first;
    this.first = Math.min(Math.max(0, this.first + share * length), this.length - length);
    this.last = this.first + length;
    this.paint();
  },

  toggle(line) {
    if (!line || line.key === undefined) return;
    if (this.open.has(line.key)) this.open.delete(line.key); else this.open.add(line.key);
    this.layOut();
  },

  lineAt(y) { return y < kAxis ? null : this.lines.find((line) => y - kAxis + this.scroll < line.y + line.height) || null; },

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const sideways = event.shiftKey ? event.deltaY + event.deltaX : event.deltaX;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move(sideways / 600);
      else this.zoom(Math.exp(event.deltaY / 400), this.painter.time(Math.max(event.offsetX, this.left)));
    }, { passive: false });
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      held = { x: event.clientX, y: event.clientY, far: false };
      canvas.setPointerCapture(event.pointerId);
      canvas.classList.add("held");
      tip.hide();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!held) return this.point(event);
      held.far = held.far || Math.abs(event.clientX - held.x) + Math.abs(event.clientY - held.y) > 3;
      if (!held.far) return;
      this.move((held.x - event.clientX) / this.painter.plot);
      byId("scroller").scrollTop += held.y - event.clientY;
      held.x = event.clientX;
      held.y = event.clientY;
    });
    canvas.addEventListener("pointerup", (event) => {
      canvas.classList.remove("held");
      if (held && !held.far) this.click(event);
      held = null;
    });
    canvas.addEventListener("pointercancel", () => { held = null; });
    canvas.addEventListener("pointerleave", () => { tip.hide(); this.pick(null); });
    canvas.addEventListener("dblclick", () => this.fit());
    canvas.addEventListener("keydown", (event) => this.key(event));
  },

  click(event) {
    const line = this.lineAt(event.offsetY);
    if (!line || line.title !== undefined) return;
    this.chosen = line;
    if (event.offsetX < this.left) this.toggle(line);
    this.paint();
  },

  point(event) {
    const line = this.lineAt(event.offsetY);
    const time = this.painter.time(event.offsetX);
    if (!line || line.title !== undefined || event.offsetX < this.left || time < 0 || time > line.timeline.length) {
      this.pick(null);
      if (line && event.offsetX < this.left && line.title === undefined) return tip.show([line.name.replace(/^[\u25b8\u25be] /, ""), line.under], event.clientX, event.clientY);
      return tip.hide();
    }
    const inMemory = event.offsetY - kAxis + this.scroll > line.y + line.box + 2 && line.band > 0;
    const index = line.rows.length === 1 && !inMemory ? operationAt(line.rows[0], time) : kIdle;
    this.pick(index === kIdle ? null : this.named(line, index));
    tip.show(describe(line, index, time, inMemory), event.clientX, event.clientY);
  },

  named(line, index) {
    const row = line.rows[0], shift = row.shifts ? row.shifts[row.workers.indexOf(line.workers[0])] : 0;
    return row.batch[index] < 0 ? null : { timeline: line.timeline, batch: row.batch[index] + shift };
  },

  /// Its micro-batch stands out everywhere.
  pick(picked) {
    const same = picked === this.picked || (picked && this.picked && picked.timeline === this.picked.timeline && picked.batch === this.picked.batch);
    this.picked = picked;
    if (!same) this.paint();
  },

  key(event) {
    const actions = {
      ArrowLeft: () => this.move(-0.15), ArrowRight: () => this.move(0.15), ArrowUp: () => this.choose(-1), ArrowDown: () => this.choose(1),
      "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6), 0: () => this.fit(), Home: () => this.fit(),
      Enter: () => this.toggle(this.chosen), " ": () => this.toggle(this.chosen), ",": () => this.step(-1), ".": () => this.step(1),
      Escape: () => { tip.hide(); this.pick(null); },
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  },

  /// The next line up or down, in sight.
  choose(by) {
    const lines = this.lines.filter((line) => line.title === undefined);
    const next = lines[Math.min(Math.max(lines.indexOf(this.chosen) + by, 0), lines.length - 1)];
    if (!next) return;
    this.chosen = next;
    this.at = undefined;
    const scroller = byId("scroller");
    if (next.y < scroller.scrollTop) scroller.scrollTop = next.y;
    if (next.y + next.height + kAxis > scroller.scrollTop + this.height) scroller.scrollTop = next.y + next.height + kAxis - this.height;
    byId("status").textContent = next.name.replace(/^[\u25b8\u25be] /, "") + " \u00b7 " + next.under;
    this.paint();
  },

  /// The next operation of the chosen line, which is named below the picture.
  step(by) {
    if (!this.chosen) this.choose(1);
    const line = this.chosen;
    if (!line || line.rows.length !== 1) return;
    const row = line.rows[0], middle = (this.first + this.last) / 2;
    const from = this.at === undefined ? lastAtMost(row.start, middle) - by : this.at;
    this.at = Math.min(Math.max(from + by, 0), row.start.length - 1);
    this.pick(this.named(line, this.at));
    byId("status").textContent = describe(line, this.at, row.start[this.at], false).join(" \u00b7 ");
    if (row.start[this.at] < this.first || row.end[this.at] > this.last)
      this.move((row.start[this.at] - middle) / (this.last - this.first));
    this.paint();
  },
};
