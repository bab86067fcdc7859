#include "librun/drive/data_digests.h"

#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "libprofile/core/hash.h"

namespace pp::run {

namespace {

constexpr Step kBlock = 16;

void add(ContentHash& hash, const SampleTable& table, std::span<const std::int64_t> samples) {
  std::string rows;
  for (const auto* const columns : {&table.inputs, &table.targets}) {
    for (const Records& records : *columns) {
      if (records.parts.empty()) continue;
      rows.resize(samples.size() * records.sample_bytes());
      read_records(records, samples, rows);
      hash.update(rows);
    }
  }
}

}  // namespace

DataDigests::DataDigests(Coordinator& run, DigestedData data, Tell tell)
    : run_(run), data_(std::move(data)), tell_(std::move(tell)) {
  thread_.add([this] {
    try {
      hash();
    } catch (...) {
      run_.stop(std::current_exception());
    }
  });
}

DataDigests::~DataDigests() {
  stop();
  join();
}

void DataDigests::hash() {
  ContentHash hash;
  int epoch = -1;
  std::vector<std::int64_t> order;
  for (Step step = data_.first; step < data_.end && !stopped_ && !run_.stopped(); ++step) {
    const int now = static_cast<int>(step / data_.epoch.steps());
    if (std::exchange(epoch, now) != now) {
      order = epoch_order(data_.epoch.samples, data_.seed, now, data_.shuffle);
      for (std::int64_t& sample : order) sample += data_.table.first;
    }
    const Step in_epoch = step % data_.epoch.steps();
    const std::int64_t first = data_.epoch.first(data_.epoch.begin(in_epoch));
    add(hash, data_.table,
        std::span(order).subspan(static_cast<std::size_t>(first),
                                 static_cast<std::size_t>(data_.epoch.step_size(in_epoch))));
    const Step done = step + 1;
    if ((done - data_.first) % kBlock == 0 || done == data_.end) tell_(done, hash.text());
  }
}

std::optional<int> DigestTable::enter(int rank, Step step, std::string digest) {
  const auto known = [&](int of) -> const std::string* {
    const auto& all = of_rank_[static_cast<std::size_t>(of)];
    const auto found = all.find(step);
    return found == all.end() ? nullptr : &found->second;
  };
  of_rank_[static_cast<std::size_t>(rank)].emplace(step, std::move(digest));
  const std::string* const first = known(0);
  for (int other = 1; first && other < static_cast<int>(of_rank_.size()); ++other) {
    const std::string* const there = known(other);
    if (there && *there != *first) return other;
  }
  return std::nullopt;
}

}  // namespace pp::run
