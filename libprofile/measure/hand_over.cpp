#include "libprofile/measure/hand_over.h"

#include <ATen/ops/empty.h>

#include <memory>
#include <utility>

namespace pp::profile {
namespace {

/// What the storage of the receiver keeps alive.
struct Loan {
  c10::Storage lender;
  MemoryCharge charge;
};

void end_loan(void* loan) { delete static_cast<Loan*>(loan); }

/// The same memory behind a storage of its own.
c10::Storage borrow(const c10::Storage& lender, const MemoryAccount& account) {
  const std::size_t bytes = lender.nbytes();
  void* data = lender.mutable_data();
  auto* loan = new Loan{lender, {account, Bytes(static_cast<std::int64_t>(bytes))}};
  return {c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(data, loan, &end_loan, lender.device()),
          /*allocator=*/nullptr, /*resizable=*/false};
}

}  // namespace

void release_charge(const at::Tensor& sent) {
  if (sent.storage().use_count() == 1) end_charge(sent.storage().data_ptr());
}

at::Tensor received(at::Tensor tensor, const MemoryAccount& account) {
  const c10::Storage& storage = tensor.storage();
  if (storage.use_count() == 1) {
    account.take_over(storage.data_ptr());
    return tensor;
  }
  return at::empty({0}, tensor.options())
      .set_(borrow(storage, account), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

}  // namespace pp::profile
