#include "libprofile/core/hash.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include <array>
#include <new>

#include "libprofile/core/error.h"

namespace pp {
namespace {

void require(bool succeeded) {
  if (succeeded) return;
  const unsigned long error = ERR_peek_last_error();  // none where there is no memory to note one
  if (error == 0 || ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE) throw std::bad_alloc();
  throw Error(ErrorKind::internal,
              "libcrypto makes no SHA-256: out of memory, or its configuration refuses it");
}

}  // namespace

void ContentHash::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

ContentHash::Context ContentHash::make_context() {
  Context context(EVP_MD_CTX_new());
  if (!context) throw std::bad_alloc();
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
