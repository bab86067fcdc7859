#include "librun/data/formats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/data/model_data.h"
#include "librun/data/readers.h"

namespace pp::run {

namespace {

namespace fs = std::filesystem;

struct FormatRow {
  DataFormat format;
  DataReader* read;
  std::string_view file;       ///< of the training set in a folder; empty: many
  std::string_view extension;  ///< of a single file; empty: needs a folder
};

constexpr std::array kRows{
    FormatRow{DataFormat::idx, read_idx_folder, "train-images.idx", ""},
    FormatRow{DataFormat::cifar10, read_cifar10, "data_batch_1.bin", ""},
    FormatRow{DataFormat::safetensors, read_stored_tensors, "train.safetensors", ".safetensors"},
    FormatRow{DataFormat::npy, read_npy_folder, "", ""},
    FormatRow{DataFormat::csv, read_csv, "train.csv", ".csv"},
    FormatRow{DataFormat::tokens, read_tokens, "train.bin", ""}};

const FormatRow& row_of(DataFormat format) {
  return *std::find_if(kRows.begin(), kRows.end(), [&](const FormatRow& row) { return row.format == format; });
}

fs::file_type type_of(const fs::path& path) {
  std::error_code reason;
  const fs::file_type type = fs::status(path, reason).type();
  if (type == fs::file_type::none)
    refuse(ErrorKind::data, path.string() + ": cannot be looked at: " + reason.message());
  return type;
}

bool is_folder(const fs::path& path) { return type_of(path) == fs::file_type::directory; }

// The names by which a folder of this format is known.
std::vector<std::string> marks(const FormatRow& row, const DataRequest& request) {
  if (row.format == DataFormat::tokens && request.token_type.empty()) return {};
  if (!row.file.empty()) return {std::string(row.file)};
  const std::string name = first_input(request).name + ".npy";
  return {"train-" + name, name};
}

std::string list_marks(const DataRequest& request) {
  std::string list;
  for (const FormatRow& row : kRows) {
    const std::vector<std::string> names = marks(row, request);
    if (!names.empty()) list.append(list.empty() ? "" : ", ").append(names.front());
  }
  return list;
}

const FormatRow& find_in_folder(const DataRequest& request) {
  const FormatRow* found = nullptr;
  for (const FormatRow& row : kRows) {
    const std::vector<std::string> names = marks(row, request);
    const bool here = std::any_of(names.begin(), names.end(),
                                  [&](const std::string& name) { return is_there(request.path / name); });
    if (!here) continue;
    if (found != nullptr) {
      refuse(ErrorKind::usage, request.path.string() + ": has data as " + std::string(name_of(found->format)) +
                                   " and as " + std::string(name_of(row.format)) +
                                   "; choose with --data-format");
    }
    found = &row;
  }
  if (found == nullptr)
    refuse(ErrorKind::data, request.path.string() + ": no data: none of " + list_marks(request) +
                                " is in it; tokens need --token-type; images, parquet, tar and .pt go through "
                                "a DataLoader: scripts/export-data");
  return *found;
}

const FormatRow& find_format(const DataRequest& request) {
  if (!request.format.empty())
    return row_of(parse_enum<DataFormat>(request.format, "--data-format", ErrorKind::usage));
  if (is_folder(request.path)) return find_in_folder(request);
  if (!is_there(request.path))
    refuse(ErrorKind::data, request.path.string() + ": no such file or folder; give data, or synthetic");
  if (!request.token_type.empty()) return row_of(DataFormat::tokens);
  for (const FormatRow& row : kRows) {
    if (!row.extension.empty() && request.path.extension() == row.extension) return row;
  }
  refuse(ErrorKind::data,
         request.path.string() +
             ": a single file is read as .safetensors or .csv, by --data-format, or as tokens "
             "by --token-type; scripts/export-data makes .safetensors of what a DataLoader reads");
}

// Options that the format does not know are mistakes.
void check_options(const DataRequest& request, const FormatRow& row) {
  const auto only_for = [&](bool given, const char* option, DataFormat format) {
    if (!given || row.format == format) return;
    refuse(ErrorKind::usage, std::string(option) + " is for " + std::string(name_of(format)) + ", " +
                                 request.path.string() + " is read as " + std::string(name_of(row.format)));
  };
  only_for(!request.token_type.empty(), "--token-type", DataFormat::tokens);
  only_for(!request.target_column.empty(), "--target-column", DataFormat::csv);
  const bool needs_folder = row.format != DataFormat::tokens && row.format != DataFormat::csv &&
                            row.format != DataFormat::safetensors;
  if (needs_folder && !is_folder(request.path))
    refuse(ErrorKind::data,
           request.path.string() + ": " + std::string(name_of(row.format)) + " data are a folder");
}

// The last samples become the test set.
void split(const DataRequest& request, DataFiles& files) {
  if (request.test_share == 0) return;
  if (files.test) refuse(ErrorKind::usage, request.path.string() + ": has a test set; leave out --test-share");
  const std::int64_t all = files.training.samples;
  const auto test = static_cast<std::int64_t>(std::floor(static_cast<double>(all) * request.test_share));
  if (test == 0 || test == all) {
    refuse(ErrorKind::data, request.path.string() + ": " + std::to_string(all) + " samples leave nothing for " +
                                (test == 0 ? "the test set" : "training") + "; change --test-share");
  }
  files.test = files.training;
  files.training.samples = all - test;
  files.test->first = all - test;
  files.test->samples = test;
}

SampleTable checked(const DataRequest& request, SampleTable table) {
  check_table(request.model, table);
  const std::size_t first = static_cast<std::size_t>(&first_input(request) - request.model.graph.inputs.data());
  table.samples = table.inputs[first].samples();
  return table;
}

}  // namespace

DataFiles open_data(const DataRequest& request) {
  const FormatRow& row = find_format(request);
  check_options(request, row);
  DataFiles files;
  files.training = checked(request, *row.read(request, Subset::training));
  if (auto test = row.read(request, Subset::test)) files.test = checked(request, std::move(*test));
  for (const SampleTable* table : {&files.training, files.test ? &*files.test : nullptr})
    if (table != nullptr) files.bytes_in_memory += bytes_in_memory(*table);
  split(request, files);
  return files;
}

SampleTable open_set(const DataRequest& request, std::optional<Subset> wanted) {
  const FormatRow& row = find_format(request);
  check_options(request, row);
  if (wanted != Subset::training) {
    if (auto test = row.read(request, Subset::test)) return checked(request, std::move(*test));
    if (wanted) refuse(ErrorKind::data, request.path.string() + ": has no test set; leave out --subset test");
  }
  return checked(request, *row.read(request, Subset::training));
}

double bytes_in_memory(const SampleTable& table) {
  double bytes = 0;
  for (const auto* columns : {&table.inputs, &table.targets}) {
    for (const Records& records : *columns) {
      for (const Records::Part& part : records.parts)
        if (part.bytes->in_memory())
          bytes += static_cast<double>(part.count) * static_cast<double>(part.stride);
    }
  }
  return bytes;
}

bool is_there(const fs::path& path) { return type_of(path) != fs::file_type::not_found; }

std::optional<fs::path> file_of(const DataRequest& request, Subset subset, std::string_view extension) {
  const bool training = subset == Subset::training;
  if (!is_folder(request.path)) return training ? std::optional(request.path) : std::nullopt;
  const fs::path file = request.path / (std::string(training ? "train" : "test") + std::string(extension));
  if (!training && !is_there(file)) return std::nullopt;
  return file;
}

void require_one_of_each(const DataRequest& request, std::string_view what) {
  const auto wanted = [&](const std::vector<DataTensor>& tensors) {
    return std::ranges::count_if(tensors, [&](const DataTensor& tensor) { return request.wants(tensor); });
  };
  const auto inputs = wanted(request.model.graph.inputs), targets = wanted(request.model.graph.targets);
  if (inputs == 1 && targets <= 1) return;
  refuse(ErrorKind::data, request.path.string() + ": " + std::string(what) +
                              " are one input and one target, the model has " + std::to_string(inputs) +
                              " inputs and " + std::to_string(targets) +
                              " targets; use safetensors, npy or --data synthetic");
}

const DataTensor& first_input(const DataRequest& request) {
  return *std::ranges::find_if(request.model.graph.inputs,
                               [&](const DataTensor& tensor) { return request.wants(tensor); });
}

}  // namespace pp::run
