// The page: heading, figures, tabs.

const page = {
  plan: 0,
  views: [],
  builders: { stages: showStages, alternatives: showAlternatives, cluster: showCluster },
  built: new Set(),

  start() {
    this.views = [...document.querySelectorAll(".view")];
    this.views.forEach((view, i) => {
      if (!view.id) view.id = "view" + i;
      view.setAttribute("role", "tabpanel");
      const tab = make("button", "", view.dataset.title);
      tab.setAttribute("role", "tab");
      tab.setAttribute("aria-controls", view.id);
      tab.addEventListener("click", () => this.open(view.id));
      tab.addEventListener("keydown", (event) => {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!by) return;
        const next = this.views[(i + by + this.views.length) % this.views.length];
        this.open(next.id);
        byId("tabs").children[this.views.indexOf(next)].focus();
      });
      byId("tabs").append(tab);
    });
    const choice = byId("plan");
    plans.forEach((plan, index) => choice.append(new Option(plan.name, String(index))));
    choice.addEventListener("change", () => this.showPlan(Number(choice.value)));
    byId("choice").hidden = plans.length < 2;
    timelineView.start();
    this.showPlan(0);
    const asked = location.hash.slice(1);
    this.open(this.views.some((view) => view.id === asked) ? asked : this.views[0].id);
  },

  open(id) {
    this.current = id;
    this.views.forEach((view, i) => {
      view.hidden = view.id !== id;
      const tab = byId("tabs").children[i];
      tab.setAttribute("aria-selected", String(view.id === id));
      tab.tabIndex = view.id === id ? 0 : -1;
    });
    tip.hide();
    this.build(id);
  },

  /// A view is made when it is first looked at.
  build(id) {
    if (!this.builders[id] || this.built.has(id)) return;
    this.built.add(id);
    this.builders[id](plans[this.plan]);
  },

  /// The timelines of these plans and no others.
  compare(indices) {
    timelineView.show(timelines.filter((timeline) => indices.includes(timeline.plan)));
    this.open("timeline");
  },

  /// The plan that heading and tables are of.
  showPlan(index) {
    this.plan = index;
    const plan = plans[index];
    byId("plan").value = String(index);
    byId("title").textContent = plan.title.split(": ")[0];
    byId("subtitle").textContent = plan.title.split(": ").slice(1).join(": ");
    this.tiles(plan);
    this.built.clear();
    this.build(this.current);
  },

  tiles(plan) {
    const t = plan.throughput || {}, rate = t.tokens_per_s || plan.rate, item = t.tokens_per_s ? "tokens" : "samples";
    const each = t.devices > 1 ? ", " + digits(rate / t.devices) + " per device" : "";
    const own = plan.tiles || [
      ["step", plan.step > 0 ? seconds(plan.step) : "-", plan.lower_bound > 0 ? "lower bound " + seconds(plan.lower_bound) + ", gap " + percent(plan.gap) : ""],
      [item + " per second", rate > 0 ? digits(rate) : "-", "mini-batch " + plan.mini_batch + each],
      ...(t.mfu ? [["model FLOP/s utilisation", percent(t.mfu), digits(t.model_flops_per_s_per_device / 1e12) + " TFLOP/s per device"]] : []),
      ["bubble", percent(plan.bubble), "1 - busy / (workers x step)"],
      ["highest peak of a worker", plan.peak > 0 ? bytes(plan.peak) : "-", counted(plan.workers.length, "worker") + (t.devices ? " on " + counted(t.devices, "device") : "")]];
    byId("tiles").replaceChildren(...own.map(([name, value, beside]) => {
      const tile = make("div", "tile");
      tile.append(make("small", "", name), make("b", "", value), make("small", "", beside));
      return tile;
    }));
  },
};

page.start();
