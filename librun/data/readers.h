// One reader per format of data: from a path to the places of its records, by headers alone (CSV: by all of
// it). Free of Torch.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "librun/data/formats.h"
#include "librun/data/records.h"

namespace pp::run {

/// Of a test set nothing when the folder has none. Throws pp::Error (data).
using DataReader = std::optional<SampleTable>(const DataRequest& request, Subset subset);

/// {train,test}-{images,labels}.idx
DataReader read_idx_folder;
/// data_batch_1.bin, data_batch_2.bin, ... and test_batch.bin: a byte of the label and 3x32x32 bytes each
DataReader read_cifar10;
/// A file, or {train,test}.safetensors: tensors named as the model's inputs and targets
DataReader read_stored_tensors;
/// {train,test}-NAME.npy, or NAME.npy, for the model's inputs and targets
DataReader read_npy_folder;
/// A file, or {train,test}.csv: a header line, one target column
DataReader read_csv;
/// A file, or {train,test}.bin: windows of the model's sequence length, the target is the input moved on by one
DataReader read_tokens;

/// Whether a file or folder of that name is there. Throws pp::Error (data) where the system does not say.
bool is_there(const std::filesystem::path& path);

/// For formats whose sets are a file each: the path itself when it is no folder, else `train` or `test` with
/// the extension in it. Nothing when there is no such test file.
std::optional<std::filesystem::path> file_of(const DataRequest& request, Subset subset,
                                             std::string_view extension);

/// Throws pp::Error (data) unless one input and at most one target are wanted; `what`: the data that are.
void require_one_of_each(const DataRequest& request, std::string_view what);

/// read(tensor) for each that is wanted, empty records for the others.
template <class Read>
std::vector<Records> columns(const DataRequest& request, const std::vector<DataTensor>& tensors, Read&& read) {
  std::vector<Records> records;
  for (const DataTensor& tensor : tensors) records.push_back(request.wants(tensor) ? read(tensor) : Records());
  return records;
}

/// The input that is wanted first.
const DataTensor& first_input(const DataRequest& request);

/// Reads the header and checks it against the file's size. Throws pp::Error (data): `PATH: not an IDX file:
/// ...`, `PATH: 100 bytes of elements, 784 expected for int8 [1, 28, 28]`.
Records read_idx(const std::filesystem::path& path);

/// Header and elements as a file, for tests and converters; `elements` in the machine's byte order.
std::string idx_bytes(ElementType type, const Shape& shape, std::string_view elements);

}  // namespace pp::run
