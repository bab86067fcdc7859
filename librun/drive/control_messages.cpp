#include "librun/drive/control_messages.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <utility>

namespace pp::run {

namespace {

void add(Packer& to, const StepFigures& figures) {
  to.add(figures.busy).add(figures.peak).add(figures.gradient_norm).add(figures.begin).add(figures.not_finite);
}

void read(Unpacker& from, StepFigures& figures) {
  from.read(figures.busy);
  from.read(figures.peak);
  from.read(figures.gradient_norm);
  from.read(figures.begin);
  from.read(figures.not_finite);
}

// Dense and on the host, as Stage::snapshot() makes them.
void add(Packer& to, const NamedTensors& tensors) {
  to.add(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    to.add(name).add(tensor.scalar_type()).add(tensor.sizes().vec());
    to.add(std::string_view(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()));
  }
}

void read(Unpacker& from, NamedTensors& tensors) {
  tensors.resize(from.take<std::size_t>());
  for (auto& [name, tensor] : tensors) {
    from.read(name);
    const auto type = from.take<at::ScalarType>();
    tensor = at::empty(from.take<std::vector<std::int64_t>>(), type);
    const std::string_view bytes = from.next(from.take<std::size_t>());
    if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  }
}

// field(value) for the plain parts of a record.
template <class Record, class Field>
void each_plain(Record& record, Field&& field) {
  field(record.busy);
  field(record.peak);
  field(record.weights);
  field(record.gradients);
  field(record.optimizer);
  field(record.versions);
  field(record.saved);
  field(record.peak_in_flight);
  field(record.peak_versions);
  field(record.sent);
  field(record.graphs);
  field(record.server);
  field(record.ops);
  field(record.messages);
}

void add_times(Packer& to, auto& all) {
  to.add(all.size());
  for (auto& [key, times] : all) {
    to.add(key.first).add(key.second);
    times.each([&](auto& value) { to.add(value); });
  }
}

template <class Kind>
void read_times(Unpacker& from, std::map<std::pair<Kind, StageId>, TimeSample>& all) {
  for (auto left = from.take<std::size_t>(); left > 0; --left) {
    const auto kind = from.take<Kind>();
    const auto stage = from.take<StageId>();
    all[{kind, stage}].each([&](auto& value) { from.read(value); });
  }
}

void add(Packer& to, WorkerRecord& record) {
  each_plain(record, [&](auto& value) { to.add(value); });
  add_times(to, record.op_times);
  add_times(to, record.instruction_times);
}

void read(Unpacker& from, WorkerRecord& record) {
  each_plain(record, [&](auto& value) { from.read(value); });
  read_times(from, record.op_times);
  read_times(from, record.instruction_times);
}

Packer message_of(ControlKind kind) { return std::move(Packer().add(kind)); }

}  // namespace

std::string pack(const Order& order) { return message_of(ControlKind::order).add(order).take(); }

Order unpack_order(Unpacker& from) { return from.take<Order>(); }

std::string pack(const LedgerEntry& entry, RunTime start) {
  Packer to = message_of(ControlKind::entry);
  to.add(entry.losses).add(entry.updates.size());
  for (const LedgerEntry::Update& update : entry.updates) {
    to.add(update.step).add(update.worker).add(Seconds(update.end - start));
    add(to, update.figures);
  }
  return to.add(entry.evaluations).take();
}

LedgerEntry unpack_entry(Unpacker& from, RunTime start) {
  LedgerEntry entry;
  from.read(entry.losses);
  entry.updates.resize(from.take<std::size_t>());
  for (LedgerEntry::Update& update : entry.updates) {
    from.read(update.step);
    from.read(update.worker);
    update.end = start + std::chrono::duration_cast<RunTime::duration>(from.take<Seconds>());
    read(from, update.figures);
  }
  from.read(entry.evaluations);
  return entry;
}

std::string pack(CheckpointShare share) {
  Packer to = message_of(ControlKind::share);
  to.add(share.step).add(share.last).add(share.pause).add(share.failure).add(share.parts.size());
  for (const CheckpointPart& part : share.parts)
    to.add(part.file).add(part.bytes).add(part.hash).add(part.owner);
  to.add(share.layers.size());
  for (const Stage::LayerState& layer : share.layers) {
    to.add(layer.layer);
    add(to, layer.tensors);
  }
  return to.take();
}

CheckpointShare unpack_share(Unpacker& from) {
  CheckpointShare share;
  from.read(share.step);
  from.read(share.last);
  from.read(share.pause);
  from.read(share.failure);
  share.parts.resize(from.take<std::size_t>());
  for (CheckpointPart& part : share.parts) {
    from.read(part.file);
    from.read(part.bytes);
    from.read(part.hash);
    from.read(part.owner);
  }
  for (auto left = from.take<std::size_t>(); left > 0; --left) {
    Stage::LayerState& layer = share.layers.emplace_back(Stage::LayerState{from.take<int>()});
    read(from, layer.tensors);
  }
  return share;
}

std::string pack(const RecordsHere& records, const std::optional<RankClock::Relation>& clock) {
  Packer to = message_of(ControlKind::records);
  to.add(clock);
  to.add(records.size());
  for (const auto& [worker, record] : records) {
    to.add(worker);
    add(to, *record);
  }
  return to.take();
}

RankRecords unpack_records(Unpacker& from) {
  RankRecords records;
  from.read(records.clock);
  records.workers.resize(from.take<std::size_t>());
  for (auto& [worker, record] : records.workers) {
    from.read(worker);
    read(from, record);
  }
  return records;
}

std::string pack(const Pulse& pulse) {
  Packer to = message_of(ControlKind::pulse);
  to.add(pulse.done).add(pulse.states.size());
  for (const auto& [worker, state] : pulse.states) to.add(worker).add(state);
  return to.take();
}

Pulse unpack_pulse(Unpacker& from) {
  Pulse pulse;
  from.read(pulse.done);
  pulse.states.resize(from.take<std::size_t>());
  for (auto& [worker, state] : pulse.states) {
    from.read(worker);
    from.read(state);
  }
  return pulse;
}

}  // namespace pp::run
