// Files of data as bytes, by their published formats.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

namespace pp::test {

/// Of a little-endian machine, as the tests' are.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  return bytes_of(std::vector<T>(values));
}

/// The length of the header in 8 bytes, the header, the data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string length;
  for (std::size_t shift = 0; shift < 64; shift += 8)
    length.push_back(static_cast<char>(header.size() >> shift & 0xff));
  return length + header + data;
}

/// Version 1.0; `shape` as Python writes a tuple.
inline std::string npy_bytes(const std::string& descr, const std::string& shape, const std::string& elements) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header += std::string(127 - 10 - header.size(), ' ') + "\n";
  return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size()) + '\0' + header + elements;
}

}  // namespace pp::test
