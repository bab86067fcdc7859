// Which files `--data PATH` names, and what they hold: found and checked from headers before work starts. A
// format is a reader (readers.h) and a row in formats.cpp. Free of Torch.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "librun/data/records.h"

namespace pp::run {

enum class DataFormat { idx, cifar10, safetensors, npy, csv, tokens };
enum class Subset { training, test };

/// How the user wants the data read.
struct DataRequest {
  const ResolvedModel& model;        ///< must outlive it
  std::filesystem::path path;        ///< a folder or a file
  std::string format{};              ///< empty: what the names of the files say
  std::string token_type{};          ///< uint8, uint16 or uint32; empty: no tokens
  std::string target_column{};       ///< of a CSV file; empty: the last one
  double test_share = 0;             ///< of the samples, taken from their end, where there are no test files
  std::set<std::string> left_out{};  ///< inputs and targets that nobody reads: the files need not have them

  bool wants(const DataTensor& tensor) const { return !left_out.contains(tensor.name); }
};

struct DataFiles {
  SampleTable training;
  std::optional<SampleTable> test{};
  double bytes_in_memory = 0;
};

/// The format is the one whose files are there: a folder with `train-images.idx`, `data_batch_1.bin`,
/// `train.safetensors`, `train-NAME.npy` (or `NAME.npy`), `train.csv`, or `train.bin` with a token type; a file
/// by its extension `.safetensors` or `.csv`, any file with a token type. Throws pp::Error (data, usage) with
/// file, value, limit and remedy; so for data that do not suit the model (check_table).
DataFiles open_data(const DataRequest& request);

/// One set by itself, found and checked alike; `wanted`: none takes the test set where the data have one, else
/// the training set.
SampleTable open_set(const DataRequest& request, std::optional<Subset> wanted);

/// Bytes of its samples that are kept in memory.
double bytes_in_memory(const SampleTable& table);

}  // namespace pp::run

namespace pp {
template <>
struct EnumNames<run::Subset> {
  static constexpr std::array table{std::pair{run::Subset::training, "training"sv},
                                    std::pair{run::Subset::test, "test"sv}};
};
template <>
struct EnumNames<run::DataFormat> {
  using enum run::DataFormat;
  static constexpr std::array table{
      std::pair{idx, "idx"sv}, std::pair{cifar10, "cifar10"sv}, std::pair{safetensors, "safetensors"sv},
      std::pair{npy, "npy"sv}, std::pair{csv, "csv"sv},         std::pair{tokens, "tokens"sv}};
};
}  // namespace pp
