"use strict";
// Draws the charts of a report from the JSON beside it. Tooltips are drawn as text, never as HTML.
(function () {
  const content = JSON.parse(document.getElementById("content").textContent);
  const drawn = [];

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue("--" + name).trim();
    return Object.fromEntries(
      ["ground", "panel", "line", "text", "soft", "compute", "memory", "first", "second", "third", "other"]
        .map((name) => [name, of(name)])
    );
  }

  const PREFIXES = ["#4c78a8", "#f58518", "#54a24b", "#b279a2", "#9d755d", "#e45756", "#72b7b2", "#eeca3b"];

  function number(value) {
    if (value === null || value === undefined) return "none";
    const size = Math.abs(value);
    return size >= 100 || Number.isInteger(value)
      ? Math.round(value).toLocaleString("en-US")
      : Number(value.toPrecision(3)).toString();
  }

  function percent(share) {
    return share === null ? "none" : (100 * share).toFixed(1) + " %";
  }

  function unitOf(seconds) {
    if (seconds >= 7200) return ["h", 3600];
    if (seconds >= 120) return ["min", 60];
    if (seconds >= 0.5) return ["s", 1];
    return ["ms", 1e-3];
  }

  function time(seconds) {
    const [unit, unitS] = unitOf(seconds);
    return number(seconds / unitS) + " " + unit;
  }

  function base(look) {
    return {
      animation: false,
      backgroundColor: "transparent",
      textStyle: { color: look.text, fontFamily: "system-ui, sans-serif" },
      tooltip: {
        renderMode: "richText", confine: true, backgroundColor: look.panel, borderColor: look.line,
        textStyle: { color: look.text, fontSize: 12 },
      },
      legend: { textStyle: { color: look.text }, top: 0 },
    };
  }

  function axis(look, more) {
    return Object.assign({
      nameTextStyle: { color: look.soft }, nameLocation: "middle",
      axisLabel: { color: look.soft, hideOverlap: true },
      axisLine: { lineStyle: { color: look.line } },
      splitLine: { lineStyle: { color: look.line, opacity: 0.5 } },
    }, more);
  }

  function schedule(look) {
    const bins = content.schedule.bins;
    const names = Object.fromEntries(content.tree.map((node) => [node.node, node.example]));
    const tops = [...new Set(bins.subtree)].filter((one) => one > 0);
    const colour = (node) => {
      const at = tops.indexOf(node);
      return at < 0 ? look.other : PREFIXES[at % PREFIXES.length];
    };
    const heights = [["9%", "30%"], ["43%", "4%"], ["52%", "14%"], ["71%", "19%"]];
    const x = bins.first_position.map(number);
    const option = base(look);
    option.legend.data = ["answer expected", "answer real"];
    option.tooltip.trigger = "axis";
    option.tooltip.formatter = (parts) => {
      const at = parts[0].dataIndex;
      const node = bins.subtree[at];
      return [
        "from position " + x[at],
        "density " + number(bins.density[at]),
        (bins.right[at] >= 0.5 ? "memory" : "compute") + "-bound side",
        "prompt cached " + percent(bins.cached[at]),
        "answer expected " + number(bins.expected_tokens[at]) + ", real " + number(bins.actual_tokens[at]),
        node ? "node " + node + ", like " + (names[node] || "") : "no large subtree",
      ].join("\n");
    };
    option.axisPointer = { link: [{ xAxisIndex: "all" }] };
    option.grid = heights.map(([top, height]) => ({ left: 78, right: 16, top, height }));
    option.xAxis = heights.map((_, at) => axis(look, {
      type: "category", gridIndex: at, data: x, axisTick: { show: false },
      axisLabel: { show: at === 3, color: look.soft, hideOverlap: true },
      name: at === 3 ? "position in the schedule" : "", nameGap: 26,
    }));
    const log = { type: "log", logBase: 10 };
    option.yAxis = [
      axis(look, Object.assign({ name: "density", nameGap: 52, gridIndex: 0 }, log)),
      axis(look, { name: "prefix", nameGap: 52, gridIndex: 1, min: 0, max: 1, axisLabel: { show: false }, splitLine: { show: false } }),
      axis(look, { name: "cached", nameGap: 52, gridIndex: 2, min: 0, max: 1, splitNumber: 2, axisLabel: { color: look.soft, formatter: (v) => 100 * v + " %" } }),
      axis(look, Object.assign({ name: "answer", nameGap: 52, gridIndex: 3 }, log)),
    ];
    const bars = { type: "bar", barCategoryGap: 0, barGap: "-100%" };
    const line = { type: "line", symbol: "none", step: "middle", xAxisIndex: 3, yAxisIndex: 3 };
    option.series = [
      // Bars stand on a density of 1, where compute and memory are in balance.
      Object.assign({ name: "density", xAxisIndex: 0, yAxisIndex: 0, data: bins.density.map((value, at) => ({
        value, itemStyle: { color: bins.right[at] >= 0.5 ? look.memory : look.compute } })) }, bars),
      Object.assign({ name: "prefix", xAxisIndex: 1, yAxisIndex: 1, data: bins.subtree.map((node) => ({
        value: 1, itemStyle: { color: colour(node) } })) }, bars),
      Object.assign({ name: "cached", xAxisIndex: 2, yAxisIndex: 2, itemStyle: { color: look.third }, data: bins.cached }, bars),
      Object.assign({ name: "answer expected", lineStyle: { color: look.soft, type: "dashed" }, itemStyle: { color: look.soft }, data: bins.expected_tokens }, line),
      Object.assign({ name: "answer real", lineStyle: { color: look.first }, itemStyle: { color: look.first }, data: bins.actual_tokens }, line),
    ];
    return option;
  }

  function tree(look) {
    const nodes = Object.fromEntries(content.tree.map((node) => [node.node, {
      name: node.level === 0 ? "job" : "node " + node.node + ": " + node.example,
      value: [node.work_s, Math.log10(Math.min(Math.max(node.density, 1e-6), 1e6))], node, children: [],
    }]));
    content.tree.slice(1).forEach((node) => nodes[node.parent].children.push(nodes[node.node]));
    Object.values(nodes).forEach((one) => {
      const rest = one.value[0] - one.children.reduce((sum, child) => sum + child.value[0], 0);
      // What is too small to be drawn by itself keeps its area.
      if (one.children.length && rest > 0.002 * one.value[0]) {
        one.children.push({ name: "smaller ones", value: [rest, one.value[1]], node: null });
      }
    });
    const root = content.tree[0];
    const middle = Math.log10(Math.min(Math.max(root.density, 1e-6), 1e6));
    const reach = Math.max(0.5, ...Object.values(nodes).map((one) => Math.abs(one.value[1] - middle)));
    const option = base(look);
    option.tooltip.formatter = ({ data, name }) => {
      const node = data && data.node;
      if (!node) return name;
      return [
        name,
        number(node.rows) + " rows, " + number(node.prompt_tokens) + " prompt tokens",
        "common prefix " + number(node.prefix_tokens) + " tokens, shared " + percent(node.sharing),
        "work " + time(node.work_s) + ", density " + number(node.density),
        "answer expected " + number(node.expected_tokens) + ", real " + number(node.actual_tokens),
      ].join("\n");
    };
    option.legend.show = false;
    option.visualMap = {
      type: "continuous", dimension: 1, min: middle - reach, max: middle + reach, calculable: false,
      inRange: { color: ["#6a9bd8", "#a5bfe2", "#d6d6d6", "#ecb394", "#e08a5e"] },
      text: ["compute-bound", "memory-bound"], textStyle: { color: look.soft },
      orient: "horizontal", left: "center", bottom: 0, itemHeight: 120,
    };
    option.series = [{
      type: "treemap", name: "job", left: 0, right: 0, top: 4, bottom: 64, roam: false,
      data: nodes[0].children.length ? nodes[0].children : [nodes[0]],
      leafDepth: 2, visibleMin: 30, breadcrumb: { bottom: 32, itemStyle: { color: look.panel, textStyle: { color: look.text } } },
      label: { color: "#111", overflow: "truncate" },
      upperLabel: { show: true, height: 20, color: look.text, backgroundColor: look.panel, overflow: "truncate" },
      itemStyle: { borderColor: look.ground, gapWidth: 1, borderWidth: 1 },
      levels: [{ itemStyle: { borderWidth: 0, gapWidth: 3 } }, {}, {}, {}],
    }];
    return option;
  }

  function timeline(look) {
    const found = ["predicted", "actual"].filter((name) => content.timeline[name]);
    const total = Math.max(...found.map((name) => content.timeline[name].seconds.at(-1)));
    const [unit, unitS] = unitOf(total);
    const heights = [["9%", "24%"], ["40%", "22%"], ["69%", "21%"]];
    const option = base(look);
    option.tooltip.trigger = "axis";
    // Both timelines share a name in the legend, and stand beside each other here.
    option.tooltip.formatter = (parts) => {
      const lines = new Map();
      for (const { seriesName, seriesId, value } of parts) {
        const shown = seriesName === "compute" || seriesName === "memory" ? percent(value[1]) : number(value[1]);
        lines.set(seriesName, [...(lines.get(seriesName) || []), shown + (seriesId.startsWith("actual") ? " real" : " foreseen")]);
      }
      return [number(parts[0].axisValue) + " " + unit, ...[...lines].map(([name, shown]) => name + ": " + shown.join(", "))].join("\n");
    };
    option.axisPointer = { link: [{ xAxisIndex: "all" }] };
    option.grid = heights.map(([top, height]) => ({ left: 78, right: 78, top, height }));
    option.xAxis = heights.map((_, at) => axis(look, {
      type: "value", gridIndex: at, min: 0, max: total / unitS, splitLine: { show: false },
      axisLabel: { show: at === 2, color: look.soft, formatter: number }, name: at === 2 ? "time in " + unit : "", nameGap: 26,
    }));
    const compact = (value) => value >= 1e6 ? value / 1e6 + "M" : value >= 1e4 ? value / 1e3 + "k" : number(value);
    const amounts = { color: look.soft, formatter: compact };
    option.yAxis = [
      axis(look, { name: "share of time", nameGap: 52, gridIndex: 0, axisLabel: { color: look.soft, formatter: (v) => Math.round(100 * v) + " %" } }),
      axis(look, { name: "KV tokens", nameGap: 52, gridIndex: 1, axisLabel: amounts }),
      axis(look, { name: "running", nameGap: 52, gridIndex: 1, position: "right", axisLabel: amounts, splitLine: { show: false } }),
      axis(look, { name: "answered", nameGap: 52, gridIndex: 2, axisLabel: amounts }),
    ];
    const columns = [
      ["compute", 0, 0, look.compute], ["memory", 0, 0, look.memory], ["kv_tokens", 1, 1, look.third],
      ["running", 1, 2, look.soft], ["answered", 2, 3, look.first],
    ];
    option.series = found.flatMap((name) => columns.map(([column, x, y, color]) => ({
      id: name + " " + column, name: column.replace("kv_tokens", "KV tokens"), type: "line", symbol: "none", xAxisIndex: x, yAxisIndex: y,
      lineStyle: { color, width: 1.6, type: name === "actual" ? "solid" : "dashed" }, itemStyle: { color },
      data: content.timeline[name].seconds.map((second, at) => [second / unitS, content.timeline[name][column][at]]),
    })));
    return option;
  }

  function policies(look) {
    const order = [...content.policies].reverse();
    const [unit, unitS] = unitOf(order.at(-1).seconds);
    const option = base(look);
    option.legend.show = false;
    option.tooltip.formatter = ({ dataIndex }) => {
      const one = order[dataIndex];
      return [
        one.name,
        number(one.seconds / unitS) + " " + unit + " (" + number(one.low_s / unitS) + " to " + number(one.high_s / unitS) + ")",
        "shared " + percent(one.sharing) + ", " + number(one.preemptions) + " preemptions",
      ].join("\n");
    };
    option.grid = { left: 130, right: 30, top: 10, bottom: 50 };
    option.xAxis = axis(look, { type: "value", name: "time in " + unit, nameGap: 28, min: 0 });
    option.yAxis = axis(look, { type: "category", data: order.map((one) => one.name), axisLabel: { color: look.text } });
    option.series = [
      { type: "bar", barMaxWidth: 26, data: order.map((one) => ({ value: one.seconds / unitS, itemStyle: { color: one.behind === 0 ? look.third : look.other } })) },
      {
        type: "custom", silent: true, data: order.map((one, at) => [one.low_s / unitS, one.high_s / unitS, at]),
        encode: { x: [0, 1], y: 2 },
        renderItem: (_, api) => {
          const low = api.coord([api.value(0), api.value(2)]), high = api.coord([api.value(1), api.value(2)]);
          const tick = (at) => ({ type: "line", shape: { x1: at[0], y1: at[1] - 5, x2: at[0], y2: at[1] + 5 }, style: { stroke: look.text, lineWidth: 1.5 } });
          return { type: "group", children: [tick(low), tick(high),
            { type: "line", shape: { x1: low[0], y1: low[1], x2: high[0], y2: high[1] }, style: { stroke: look.text, lineWidth: 1.5 } }] };
        },
      },
    ];
    return option;
  }

  function lengths(look) {
    const shares = content.lengths.shares;
    const names = Object.keys(shares).filter((name) => content.lengths.answers[name]);
    const colour = { sampled: look.third, expected: look.other, real: look.first };
    const option = base(look);
    option.tooltip.trigger = "axis";
    option.tooltip.valueFormatter = percent;
    option.grid = { left: 78, right: 16, top: 34, bottom: 50 };
    option.xAxis = axis(look, { type: "category", data: content.lengths.from_tokens.map(number), name: "tokens of an answer, from", nameGap: 28 });
    option.yAxis = axis(look, { type: "value", name: "share of answers", nameGap: 52, axisLabel: { color: look.soft, formatter: (v) => Math.round(100 * v) + " %" } });
    option.series = names.map((name) => ({ name, type: "bar", barGap: 0, itemStyle: { color: colour[name] }, data: shares[name] }));
    return option;
  }

  const charts = { schedule, tree, timeline, policies, lengths };

  function draw() {
    const look = colours();
    drawn.splice(0).forEach((chart) => chart.dispose());
    Object.entries(charts).forEach(([name, option]) => {
      const place = document.getElementById(name);
      if (!place) return;
      if (name === "policies") place.style.height = 90 + 44 * content.policies.length + "px";
      const chart = echarts.init(place, null, { renderer: "svg" });
      chart.setOption(option(look));
      drawn.push(chart);
    });
    document.documentElement.dataset.charts = String(drawn.length);
  }

  draw();
  window.addEventListener("resize", () => drawn.forEach((chart) => chart.resize()));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
