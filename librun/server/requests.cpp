#include "librun/server/requests.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <span>

#include "libprofile/device/memory_meter.h"
#include "librun/transport/group_view.h"

namespace pp::run {

RequestRoom::RequestRoom(const at::Tensor& weights) {
  const profile::ChargeMemory charged{profile::MemoryAccount()};  // on its way it counts at nobody
  if (!weights.defined()) {
    all_ = at::empty({static_cast<std::int64_t>(kHeadBytes)}, at::kByte);
    return;
  }
  const auto head = static_cast<std::int64_t>(kHeadBytes / weights.element_size());
  all_ = at::empty({head + weights.numel()}, weights.scalar_type());
  vector_ = all_.narrow(0, head, weights.numel());
}

std::span<std::byte> RequestRoom::bytes() const { return bytes_of(all_); }

std::span<std::byte> RequestRoom::bytes(const RequestHead& head) const {
  return head.pushes ? bytes() : bytes().first(kHeadBytes);
}

RequestHead RequestRoom::head() const {
  RequestHead head;
  std::memcpy(&head, bytes().data(), sizeof head);
  return head;
}

void RequestRoom::set_head(const RequestHead& head) const { std::memcpy(bytes().data(), &head, sizeof head); }

}  // namespace pp::run
