// Plain values as bytes, for control messages between processes of one build on machines of one kind. Free of
// Torch.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "libprofile/core/error.h"

namespace pp::run {

template <class T>
concept Plain = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>;

class Packer {
 public:
  template <Plain T>
  Packer& add(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Packer& add(std::string_view text) {
    add(text.size());
    bytes_.append(text);
    return *this;
  }
  Packer& add(const std::string& text) { return add(std::string_view(text)); }
  template <Plain T>
  Packer& add(const std::vector<T>& values) {
    add(values.size());
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads what a Packer has written, in its order. `bytes` must outlive it. Throws pp::Error (internal) where
/// they end too early.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}

  template <Plain T>
  void read(T& value) {
    std::memcpy(static_cast<void*>(&value), next(sizeof value).data(), sizeof value);
  }
  void read(std::string& text) { text = next(take<std::size_t>()); }
  template <Plain T>
  void read(std::vector<T>& values) {
    values.resize(take<std::size_t>());
    const std::string_view from = next(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(static_cast<void*>(values.data()), from.data(), from.size());
  }
  template <class T>
  T take() {
    T value{};
    read(value);
    return value;
  }
  std::string_view next(std::size_t count) {
    if (count > rest_.size())
      throw Error(ErrorKind::internal, "a control message between processes is too short");
    const std::string_view found = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return found;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

}  // namespace pp::run
