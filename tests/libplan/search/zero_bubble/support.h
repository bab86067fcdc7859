// Pipelines for tests of the zero-bubble search, and the hand-written orders spelled out (Qi et al., ICLR'24).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "libplan/search/zero_bubble/clock.h"
#include "libplan/simulate/simulate.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"

namespace pp::plan::test {

/// One stage per worker, no lists yet.
inline ProgramSet straight_placement(int workers, int micro_batches) {
  ProgramSet set;
  set.micro_batches = micro_batches;
  for (int s = 0; s < workers; ++s) set.stage_workers.push_back({WorkerId{s}});
  return set;
}

inline StageCosts split_costs(double forward, double input, double weight) {
  StageCosts costs;
  costs.forward = Seconds(forward);
  costs.input_gradient = Seconds(input);
  costs.weight_gradient = Seconds(weight);
  costs.backward = Seconds(input + weight);
  return costs;
}

/// F = I = W = 1.
inline ZeroBubbleRequest equal_pipeline(int workers, int micro_batches) {
  ZeroBubbleRequest request;
  request.pipeline.programs = straight_placement(workers, micro_batches);
  request.pipeline.stages.assign(at(workers), split_costs(1, 1, 1));
  return request;
}

/// Times 1..5 or from 0.2 to 2, updates; latency in one of two, tensors on slow links in one of four.
inline ZeroBubbleRequest random_pipeline(Random& random, int workers, int micro_batches) {
  ZeroBubbleRequest request = equal_pipeline(workers, micro_batches);
  const bool whole = random.integer(0, 1) == 0;
  const auto time = [&] { return whole ? random.integer(1, 5) : 0.2 + 1.8 * random.unit(); };
  for (StageCosts& costs : request.pipeline.stages) {
    const double forward = time();
    const double input = time();
    costs = split_costs(forward, input, time());
    costs.update = Seconds(random.integer(0, 1) * random.unit());
  }
  Link link{BytesPerSecond(random.integer(0, 3) == 0 ? 1000 : 0), Seconds(0.3 * random.integer(0, 1))};
  if (random.integer(0, 3) == 0) {
    link.message_cost = Seconds(0.2 * random.integer(0, 2));
    link.overlap = 0.5 * random.integer(0, 2);
  }
  const auto count = at(workers);
  request.pipeline.links = {{link}};
  for (int s = 0; s + 1 < workers; ++s) {
    request.pipeline.edges.push_back(
        {StageId{s}, StageId{s + 1}, Bytes(random.integer(0, 800)), Bytes(random.integer(0, 800))});
  }
  return request;
}

/// ZB-H1: w forwards; then F, I and, from micro-batch i on, W.
inline ProgramSet zb_h1(int workers, int micro_batches) {
  ProgramSet set = straight_placement(workers, micro_batches);
  for (int i = 0; i < workers; ++i) {
    const StageId stage{i};
    Program program;
    const int w = std::min(workers - 1 - i, micro_batches);
    for (int m = 0; m < w; ++m) program.push_back({OpKind::forward, stage, m});
    int q = 0;
    for (int b = 0; b < micro_batches; ++b) {
      if (w + b < micro_batches) program.push_back({OpKind::forward, stage, w + b});
      program.push_back({OpKind::input_gradient, stage, b});
      if (b >= i) program.push_back({OpKind::weight_gradient, stage, q++});
    }
    while (q < micro_batches) program.push_back({OpKind::weight_gradient, stage, q++});
    program.push_back({OpKind::update, stage, 0});
    set.workers.push_back(program);
  }
  return set;
}

/// ZB-H2: k forwards; then I, from micro-batch 2i on W, and F.
inline ProgramSet zb_h2(int workers, int micro_batches) {
  ProgramSet set = straight_placement(workers, micro_batches);
  for (int i = 0; i < workers; ++i) {
    const StageId stage{i};
    Program program;
    int f = 0;
    while (f < std::min(2 * (workers - i) - 1, micro_batches)) program.push_back({OpKind::forward, stage, f++});
    int q = 0;
    for (int b = 0; b < micro_batches; ++b) {
      program.push_back({OpKind::input_gradient, stage, b});
      if (b >= 2 * i) program.push_back({OpKind::weight_gradient, stage, q++});
      if (f < micro_batches) program.push_back({OpKind::forward, stage, f++});
    }
    while (q < micro_batches) program.push_back({OpKind::weight_gradient, stage, q++});
    program.push_back({OpKind::update, stage, 0});
    set.workers.push_back(program);
  }
  return set;
}

/// 1F1B with I W in place of every B.
inline ProgramSet split_1f1b(int workers, int micro_batches) {
  ProgramSet set = straight_placement(workers, micro_batches);
  for (int s = 0; s < workers; ++s) {
    const StageId stage{s};
    Program program;
    const int w = std::min(workers - 1 - s, micro_batches);
    for (int m = 0; m < w; ++m) program.push_back({OpKind::forward, stage, m});
    for (int i = 0; i < micro_batches; ++i) {
      if (w + i < micro_batches) program.push_back({OpKind::forward, stage, w + i});
      program.push_back({OpKind::input_gradient, stage, i});
      program.push_back({OpKind::weight_gradient, stage, i});
    }
    program.push_back({OpKind::update, stage, 0});
    set.workers.push_back(program);
  }
  return set;
}

/// `F0 F1 I0 W0 ...`: the short form of a one-stage worker's list.
inline std::string short_text(const Program& program) {
  std::string text;
  for (const Op& op : program) {
    if (!has_micro_batch(op.kind)) continue;
    const char letter = op.kind == OpKind::forward ? 'F' : op.kind == OpKind::input_gradient ? 'I' : 'W';
    text += (text.empty() ? "" : " ") + std::string(1, letter) + std::to_string(op.micro_batch);
  }
  return text;
}

}  // namespace pp::plan::test
