// Samples as records of one size: what all files of data come down to. A reader says from headers alone where
// the records of each input and target stand; everything else is done here, for all of them. Free of Torch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "librun/data/byte_source.h"
#include "librun/data/element_type.h"

namespace pp::run {

/// One input or target of all samples, as stored.
struct Records {
  /// Sample i of `count` begins at offset + i * stride.
  struct Part {
    std::shared_ptr<const ByteSource> bytes;
    std::uint64_t offset = 0;
    std::uint64_t stride = 0;
    std::int64_t count = 0;
  };
  std::string source{};       ///< for messages: the file, and what of it
  std::vector<Part> parts{};  ///< one after the other
  ElementType type = ElementType::uint8;
  bool big_endian = false;
  Shape shape{};  ///< per sample

  std::int64_t samples() const;
  std::size_t sample_bytes() const;
};

/// A training or test set. The columns may hold samples before `first` that belong to the other one.
struct SampleTable {
  std::string source{};
  std::vector<Records> inputs{};   ///< in the order of the model's inputs; without parts: left out
  std::vector<Records> targets{};  ///< in the order of the model's targets, likewise
  std::int64_t first = 0;
  std::int64_t samples = 0;
};

/// Bytes of dense elements. Throws pp::Error (data) that begins with `source` unless there are 1 to 2^40 of
/// them.
std::uint64_t dense_bytes(const std::string& source, const Shape& shape, ElementType type);
/// The first dimension of `shape` counts the samples, which begin at `offset` of the file. Throws as above.
Records dense_records(std::string source, std::shared_ptr<const ByteSource> bytes, std::uint64_t offset,
                      const Shape& shape, ElementType type);

/// The records of these samples one after the other, in the machine's byte order; `out` has as many bytes.
/// Neighbours in the file are read at once.
void read_records(const Records& records, std::span<const std::int64_t> samples, std::span<char> out);

/// Where a sample stands, and the element within it: `train-labels.idx: byte 8`.
std::string place_of(const Records& records, std::int64_t sample, std::int64_t element);

struct OutOfRange {
  std::int64_t sample = 0, element = 0, value = 0;
};
/// The first value of integer records that is neither in 0..limit-1 nor `ignored`. Reads all of them, unless
/// the type has no others.
std::optional<OutOfRange> find_out_of_range(const Records& records, std::int64_t limit,
                                            std::optional<std::int64_t> ignored = {});

}  // namespace pp::run
