// Small valid documents of every kind, made in code: what the fuzzers mutate.
#pragma once

#include <string>
#include <vector>

#include "libplan/plan/plan.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/profile.h"

namespace pp::fuzz {

/// Chains, residual edges, shared weights, two inputs, dropout, batch norm, recurrences; all can be trained.
std::vector<ModelGraph> model_corpus();

/// Times and bytes that follow from shapes and FLOPs, for a few micro-batch sizes.
Profile profile_of(const ModelGraph& model);

/// Configurations of Hugging Face, one or two of each family.
std::vector<Json> config_corpus();
std::vector<Profile> profile_corpus();
std::vector<Cluster> cluster_corpus();

/// Plans over schedules, models, replicas and recomputation: written by hand, and by the planner, with
/// predictions.
std::vector<plan::Plan> plan_corpus();
/// Those of them that pp-run executes, with small models.
std::vector<plan::Plan> trainable_corpus();

/// Programs in PyTorch's exchange form.
std::vector<std::string> csv_corpus();
/// Profiles of other planners: `graph.txt`, Piper's and dnn-partitioning's JSON.
std::vector<std::string> pipedream_corpus();
std::vector<Json> piper_corpus();
std::vector<Json> dnn_partitioning_corpus();

/// Command lines of pp-plan on profile.json, cluster.json, plan.json and programs.csv.
std::vector<std::vector<std::string>> command_corpus();
/// Options of a planning command, which may be put together at will.
std::vector<std::vector<std::string>> option_corpus();

}  // namespace pp::fuzz
