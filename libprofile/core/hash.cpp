#include "libprofile/core/hash.h"

#include <openssl/evp.h>

#include <array>

#include "libprofile/core/error.h"

namespace pp {
namespace {

void require(bool succeeded) {
  if (!succeeded) throw Error(ErrorKind::internal, "libcrypto makes no SHA-256");
}

}  // namespace

void ContentHash::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

ContentHash::Context ContentHash::make_context() {
  Context context(EVP_MD_CTX_new());
  require(context != nullptr);
  return context;
}

ContentHash::ContentHash() : context_(make_context()) {
  require(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void ContentHash::update(std::string_view bytes) {
  require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

// Of a copy, because the end of a hash ends its context.
std::string ContentHash::text() const {
  const Context copy = make_context();
  std::array<unsigned char, 32> bytes{};
  require(EVP_MD_CTX_copy_ex(copy.get(), context_.get()) == 1 &&
          EVP_DigestFinal_ex(copy.get(), bytes.data(), nullptr) == 1);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "sha256:";
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 0xf];
  }
  return text;
}

std::string content_hash(std::string_view bytes) {
  ContentHash hash;
  hash.update(bytes);
  return hash.text();
}

}  // namespace pp
