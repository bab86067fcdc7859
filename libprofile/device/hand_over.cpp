#include "libprofile/device/hand_over.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>

#include "libprofile/device/cuda_device.h"

namespace pp::profile {
namespace {

/// What the storage of the receiver keeps alive.
struct Loan {
  c10::Storage lender;
  std::optional<MemoryCharge> charge;  ///< none: handed on
};

void end_loan(void* loan) { delete static_cast<Loan*>(loan); }

/// The same memory behind a storage of its own.
c10::Storage borrow(const c10::Storage& lender, const MemoryAccount& account) {
  const std::size_t bytes = lender.nbytes();
  void* data = lender.mutable_data();
  auto* loan = new Loan{lender, {}};
  loan->charge.emplace(account, Bytes(static_cast<std::int64_t>(bytes)));
  return {c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(data, loan, &end_loan, lender.device()),
          /*allocator=*/nullptr, /*resizable=*/false};
}

/// Whose block it is, however often it was handed on.
const c10::Storage& lender_of(const c10::Storage& storage) {
  const c10::Storage* lender = &storage;
  while (lender->data_ptr().get_deleter() == &end_loan)
    lender = &static_cast<const Loan*>(lender->data_ptr().get_context())->lender;
  return *lender;
}

/// How many of these tensors hold the storage, each counted once.
std::size_t holders(std::span<const at::Tensor> tensors, const c10::Storage& storage) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].storage().unsafeGetStorageImpl() != storage.unsafeGetStorageImpl()) continue;
    const auto is_same = [&](const at::Tensor& before) { return before.is_same(tensors[i]); };
    if (std::none_of(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(i), is_same)) ++count;
  }
  return count;
}

}  // namespace

void release_charges(std::span<const at::Tensor> leaving) {
  for (const at::Tensor& tensor : leaving) {
    const c10::Storage& storage = tensor.storage();
    if (storage.use_count() != holders(leaving, storage)) continue;
    const c10::DataPtr& block = storage.data_ptr();
    if (block.get_deleter() == &end_loan) {
      static_cast<Loan*>(block.get_context())->charge.reset();
    } else {
      end_charge(block);
    }
  }
}

at::Tensor received(const at::Tensor& tensor, const MemoryAccount& account) {
  return at::empty({0}, tensor.options())
      .set_(borrow(tensor.storage(), account), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

void keep_for_stream(const at::Tensor& tensor) { keep_for_this_stream(lender_of(tensor.storage())); }

}  // namespace pp::profile
