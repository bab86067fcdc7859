// Content hashes: `sha256:` and 64 hex digits (FIPS 180-4), by OpenSSL's libcrypto, which uses the processor's
// SHA instructions.
#pragma once

#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace pp {

/// Of bytes that come in pieces. Throws pp::Error (internal) where the library refuses.
class ContentHash {
 public:
  ContentHash();
  void update(std::string_view bytes);
  /// Of all bytes so far.
  std::string text() const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  using Context = std::unique_ptr<evp_md_ctx_st, Free>;
  static Context make_context();

  Context context_;
};

std::string content_hash(std::string_view bytes);

}  // namespace pp
