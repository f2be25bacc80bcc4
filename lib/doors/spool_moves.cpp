// SPDX-License-Identifier: Apache-2.0
#include "doors/spool_moves.hpp"

#include "core/percent_text.hpp"
#include "format/json_fields.hpp"
#include "format/sealed_json.hpp"
#include "os/fd.hpp"
#include "os/file_copy.hpp"
#include "os/small_file.hpp"

#include <ckpt/error.hpp>

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

namespace ckpt::doors {
namespace {

constexpr const char* intent_format = "ckpt-intent";

/// "./a//b/" -> "a/b"; "." -> "".
std::string clean_name(const std::string& path) {
  std::string name = std::filesystem::path(path).lexically_normal().string();
  while (name.ends_with('/')) name.pop_back();
  return name == "." ? std::string() : name;
}

/// As the system finds it: "link/.." isn't where the link is.
std::string real_place(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const std::string name(os::last_name_of(path));
  if (name.empty() || name == "." || name == "..") return std::filesystem::canonical(path).string();
  const std::string parent = std::filesystem::canonical(os::parent_of(path)).string();
  return parent == "/" ? parent + name : parent + "/" + name;
}

std::string place_in(const std::string& tree, const Move& move) {
  return move.to.empty() ? tree : tree + "/" + move.to;
}

/// True if one of them is another, or lies in it.
bool overlap(const std::vector<Move>& moves, std::string Move::*side) {
  std::set<std::string_view> paths;
  for (const Move& move : moves) {
    if (!paths.insert(move.*side).second) return true;
  }
  if (paths.contains("")) return paths.size() > 1;
  return std::any_of(paths.begin(), paths.end(), [&](std::string_view path) {
    for (std::size_t slash = path.rfind('/'); slash != std::string_view::npos; slash = path.rfind('/')) {
      path = path.substr(0, slash);
      if (paths.contains(path)) return true;
    }
    return false;
  });
}

/// Links that were followed, and files with a second name, through which they could still be written to.
bool is_plain(const source::TreeEntry& entry) {
  if (entry.file.type == format::EntryType::hardlink) return false;
  const auto status = os::stat_path(entry.origin, false);
  if (!status) return false;
  if (S_ISLNK(status->st_mode) && entry.file.type != format::EntryType::symlink) return false;
  return S_ISDIR(status->st_mode) || status->st_nlink == 1;
}

}  // namespace

std::string encode_intent(const Intent& intent) {
  nlohmann::ordered_json object = format::json_head(intent_format);
  object["by_moving"] = intent.by_moving;
  object["moves"] = nlohmann::ordered_json::array();
  for (const Move& move : intent.moves) {
    object["moves"].push_back({{"from", percent_encode(move.from)}, {"to", percent_encode(move.to)}});
  }
  return format::seal(object);
}

Intent decode_intent(std::string_view text, const std::string& name) {
  const nlohmann::ordered_json object = format::unseal(text, name);
  const format::JsonFields fields(object, name);
  (void)fields.check_version(intent_format);
  Intent intent{.by_moving = fields.truth("by_moving"), .moves = {}};
  if (!fields.at("moves").is_array()) fields.fail("field 'moves' is not a list");
  for (const nlohmann::ordered_json& item : fields.at("moves")) {
    const format::JsonFields move(item, name);
    const auto from = percent_decode(move.text("from"));
    const auto to = percent_decode(move.text("to"));
    if (!from || !to || !from->starts_with('/') || (!to->empty() && !format::is_safe_path(*to)))
      fields.fail("a move has no place to go");
    intent.moves.push_back({.from = *from, .to = *to});
  }
  return intent;
}

std::optional<std::vector<Move>> plan_moves(const SaveOptions& save, const std::vector<source::TreeEntry>& entries) {
  if (!std::all_of(entries.begin(), entries.end(), is_plain)) return std::nullopt;
  std::vector<Move> moves;
  for (const std::string& operand : save.sources) {
    if (operand == "-") return std::nullopt;
    const std::string origin = real_place(save.directory ? *save.directory + "/" + operand : operand);
    const auto status = os::stat_path(origin, false);
    if (!status || S_ISLNK(status->st_mode)) return std::nullopt;
    const bool contents = S_ISDIR(status->st_mode) && (!save.directory || clean_name(operand).empty());
    if (!contents) {
      const std::string to = save.directory ? clean_name(operand) : std::string(os::last_name_of(origin));
      moves.push_back({.from = origin, .to = to});
    } else if (save.sources.size() == 1) {
      moves.push_back({.from = origin, .to = {}});
    } else {
      for (const std::string& name : os::list_directory(origin).value_or(std::vector<std::string>{}))
        moves.push_back({.from = origin + "/" + name, .to = name});
    }
  }
  if (overlap(moves, &Move::from) || overlap(moves, &Move::to)) return std::nullopt;
  return moves;
}

bool move_in(const std::vector<Move>& moves, const std::string& tree) {
  for (const Move& move : moves) {
    const std::string to = place_in(tree, move);
    std::filesystem::create_directories(os::parent_of(to));
    if (::rename(move.from.c_str(), to.c_str()) == 0) continue;
    const int error = errno;
    if (move_back(moves, tree) == MovedBack::stuck) {
      throw Error(Errc::exists, "'" + to + "' can't be moved back to '" + move.from + "', where something else is now");
    }
    if (error == ENOENT) os::throw_errno(error, "cannot move '" + move.from + "'");
    return false;
  }
  return true;
}

MovedBack move_back(const std::vector<Move>& moves, const std::string& tree) {
  MovedBack result = MovedBack::all;
  for (auto move = moves.rbegin(); move != moves.rend(); ++move) {
    const std::string to = place_in(tree, *move);
    const auto status = os::stat_path(to, false);
    if (!status) continue;
    try {
      if (!os::rename_to_free_name(to, move->from)) result = MovedBack::stuck;
    } catch (const Error&) {
      result = MovedBack::stuck;  // its directory is gone, or is another now
    }
  }
  return result;
}

bool all_moved(const std::vector<Move>& moves, const std::string& tree) {
  return std::all_of(moves.begin(), moves.end(),
                     [&](const Move& move) { return os::stat_path(place_in(tree, move), false).has_value(); });
}

}  // namespace ckpt::doors
