// Expected digests: the examples of FIPS 180-4; the lengths around the padding from another implementation
// (sha256sum).
#include "libprofile/core/hash.h"

#include "tests/support/doctest.h"

using pp::content_hash;

TEST_SUITE("libprofile/core/hash") {
  TEST_CASE("the standard's examples") {
    CHECK(content_hash("") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(content_hash("abc") == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(content_hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
          "sha256:248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(content_hash("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopq"
                       "rlmnopqrsmnopqrst"
                       "nopqrstu") ==
          "sha256:cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    CHECK(content_hash(std::string(1'000'000, 'a')) ==
          "sha256:cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }

  TEST_CASE("bytes in pieces: the hash of all so far, which may go on") {
    pp::ContentHash hash;
    hash.update("a");
    hash.update("");
    hash.update("bc");
    CHECK(hash.text() == content_hash("abc"));
    hash.update("dbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq");
    CHECK(hash.text() == "sha256:248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  }

  TEST_CASE("the padding fits, just fits and needs another block") {
    // 55 bytes leave room for the bit and the length in one block, 56 to 64 do not.
    CHECK(content_hash(std::string(55, 'a')) ==
          "sha256:9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    CHECK(content_hash(std::string(56, 'a')) ==
          "sha256:b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
    CHECK(content_hash(std::string(63, 'a')) ==
          "sha256:7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
    CHECK(content_hash(std::string(64, 'a')) ==
          "sha256:ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  }
}
