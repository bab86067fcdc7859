#include "tests/lab/fuzz/data_files.h"

#include <numeric>
#include <utility>
#include <vector>

#include "libprofile/core/file.h"
#include "librun/data/formats.h"
#include "librun/data/readers.h"
#include "tests/lab/fuzz/mutate_text.h"
#include "tests/librun/data_bytes.h"

namespace pp::fuzz {
namespace {

namespace fs = std::filesystem;
using Files = std::vector<std::pair<std::string, std::string>>;  // name, bytes

/// One linear over images of 3x32x32 or three numbers, or sequences of four tokens.
ResolvedModel model_of(const Shape& input, bool tokens) {
  ModelGraph graph;
  graph.name = "small";
  graph.inputs = {{"x", {input, tokens ? DType::int64 : DType::float32}}};
  graph.targets = {{"y", {tokens ? input : Shape{}, DType::int64}}};
  const std::int64_t classes = 100;
  if (tokens) {
    graph.layers = {
        {"first", "embedding", {"x"}, {{"num_embeddings", classes}, {"embedding_dim", std::int64_t{2}}}, ""}};
  } else {
    graph.layers = {{"first", "flatten", {"x"}, {}, ""}};
  }
  graph.layers.push_back({"head", "linear", {"first"}, {{"out_features", classes}}, ""});
  graph.outputs = {"head"};
  graph.loss = LossSpec{"cross_entropy", {"head", "y"}, {}};
  return resolve(graph);
}

/// Two samples of x [3] and y in a format.
Files small_files(run::DataFormat format) {
  const std::string x = "abcdef", y = std::string("\1\2", 2);
  switch (format) {
    case run::DataFormat::idx:
      return {{"train-images.idx", run::idx_bytes(run::ElementType::uint8, {2, 3}, x)},
              {"train-labels.idx", run::idx_bytes(run::ElementType::uint8, {2}, y)}};
    case run::DataFormat::cifar10: return {{"data_batch_1.bin", std::string(std::size_t{2} * 3073, '\3')}};
    case run::DataFormat::safetensors:
      return {
          {"train.safetensors",
           test::safetensors_bytes(
               R"({"x":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]},"y":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}})",
               x + y)}};
    case run::DataFormat::npy:
      return {{"x.npy", test::npy_bytes("|u1", "(2, 3)", x)}, {"y.npy", test::npy_bytes("|u1", "(2,)", y)}};
    case run::DataFormat::csv: return {{"train.csv", "a,b,c,y\n1,2.5,-3,1\n4,1e3,6,2\n"}};
    case run::DataFormat::tokens: return {{"train.bin", "ABCDEFGHIJKLMNOPQRSTUVWX"}};
  }
  return {};
}

void mutate(Random& random, std::string& bytes) {
  if (random.one_in(2)) mutate_bytes(random, bytes);
  if (random.one_in(2)) mutate_cells(random, bytes, ",:[]()\n");
  const std::size_t header = std::min<std::size_t>(bytes.size(), 16);
  if (header > 0 && random.one_in(3)) bytes[random.below(header)] = static_cast<char>(random.next());
}

/// All of it, as training would.
void read_all(const run::SampleTable& table) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(table.samples));
  std::iota(samples.begin(), samples.end(), table.first);
  for (const auto* columns : {&table.inputs, &table.targets}) {
    for (const run::Records& records : *columns) {
      std::vector<char> bytes(samples.size() * records.sample_bytes());
      run::read_records(records, samples, bytes);
    }
  }
}

}  // namespace

std::string check_data_files(Random& random, const fs::path& folder) {
  const auto format = random.pick(EnumNames<run::DataFormat>::table).first;
  const bool tokens = format == run::DataFormat::tokens, images = format == run::DataFormat::cifar10;
  const fs::path data = folder / "data";
  fs::remove_all(data);
  fs::create_directory(data);
  Files files = small_files(format);
  mutate(random, random.pick(files).second);
  for (const auto& [name, bytes] : files) write_file(data / name, bytes);
  const ResolvedModel model = model_of(images ? Shape{3, 32, 32} : tokens ? Shape{4} : Shape{3}, tokens);
  run::DataRequest request{.model = model, .path = data};
  if (tokens) request.token_type = random.one_in(2) ? "uint8" : "uint16";
  if (random.one_in(4)) request.test_share = 0.5;
  const run::DataFiles found = run::open_data(request);
  read_all(found.training);
  if (found.test) read_all(*found.test);
  return found.training.samples > 0 ? "" : "data without samples are accepted";
}

}  // namespace pp::fuzz
