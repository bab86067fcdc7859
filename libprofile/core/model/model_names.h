// The names of a model graph: one space for inputs, targets and layers, and what a reference in an input list
// means. Private to resolve().
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "libprofile/core/fields.h"
#include "libprofile/core/model/model_graph.h"

namespace pp::detail {

std::string in_quotes(std::string_view name);
/// Letters, digits and `_ . - /`.
bool is_name(std::string_view name);
/// `layer1.0.conv1`: letters, digits, `_` and `-`, with single dots between them.
bool is_dotted_name(std::string_view name);

class NameTable {
 public:
  /// Throws pp::Error (data) for a name that is no name, or is taken, and for data tensors with bad shapes.
  /// `graph` must outlive the table; `pointer` is the graph's.
  NameTable(const ModelGraph& graph, std::string pointer);

  /// The source behind `reference`, which stands at `pointer` and belongs to layer `reader`. Throws for an
  /// unknown name and for a layer from `reader` on. The output is checked by output_number(): its count is not
  /// known here.
  TensorSource source(const std::string& reference, std::size_t reader, const std::string& pointer) const;
  /// `layer:1` -> layer. Names hold no colon.
  static std::string_view name_part(std::string_view reference);
  /// The k of `layer:k`, 0 without; throws unless it is below `count`.
  static int output_number(std::string_view reference, std::size_t count, const std::string& pointer);

  /// Index of a layer that stands before `reader`; -1 when `name` is none.
  int earlier_layer(std::string_view name, std::size_t reader) const;

 private:
  void declare(const std::string& name, TensorSource source, const std::string& pointer);
  void declare_tensor(const DataTensor& tensor, TensorSource source, const std::string& pointer);
  [[noreturn]] void refuse_order(std::size_t layer, std::size_t reader, const std::string& pointer) const;
  std::string path_back(std::size_t from, std::size_t to) const;

  struct Entry {
    TensorSource source;
    std::string pointer;  ///< of the declaration
  };
  const ModelGraph& graph_;
  std::string pointer_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace pp::detail
