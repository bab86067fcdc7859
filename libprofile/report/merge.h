// Adding micro-batch sizes to a profile: two documents of one model on one device become one.
#pragma once

#include "libprofile/core/profile.h"

namespace pp::profile {

/// What happens to a micro-batch size that both profiles have.
enum class Overlap { refuse, first, second };

/// The points of both, sizes ascending; of a size that both have, those of the profile that `overlap` names.
/// Context values that differ are joined as `a; b`; an optimizer or anything else that exists once is that of
/// the first profile. Throws pp::Error (usage) that names both values where model, type, mode or device differ,
/// and the sizes in common when `overlap` refuses them.
Profile merge_profiles(const Profile& first, const Profile& second, Overlap overlap = Overlap::refuse);

}  // namespace pp::profile

namespace pp {
template <>
struct EnumNames<profile::Overlap> {
  static constexpr std::array table{std::pair{profile::Overlap::refuse, "refuse"sv},
                                    std::pair{profile::Overlap::first, "first"sv},
                                    std::pair{profile::Overlap::second, "second"sv}};
};
}  // namespace pp
