// The control protocol between scheduler and workers: length-prefixed MessagePack documents over
// TCP.
//
//   frame = u32 little-endian length of the body, body (MessagePack of one JSON object with "type")
//
// The first frame of a connection must be "hello" with the job's token (64 hex digits, compared in
// constant time) and at most kMaxHello bytes; anything else drops the connection unparsed. Later
// frames are at most kMaxFrame bytes. Strings are bytes (paths need not be UTF-8). Data never
// travels here.
//
//   worker -> scheduler
//     hello    {token, protocol, worker, host, pid, device, epoch, lease}
//                  worker: the id given by its supervisor; lease: the newest that it has received
//                  (0: none), so that those which were lost with a broken link are given again
//     want     {tiles, stages, assembles}
//                  so many model runs may be sent more, and so many units that stage an input or
//                  assemble an output (credits, absolute, each replaces the last); only while a
//                  renewal's answer is known, without which nothing could be published
//     renew    {sent_us, phase, batches, busy_s, private_bytes}
//                  every lease_s / 4, at most 1 s
//     outcome  {lease, unit, attempt, outcome: {...}, seq}
//     profile  {...}
//                  totals of the stages and new trace events; every few seconds and at the end
//     model    {can, card}
//                  where context says pass_model: before it loads the model it asks whether another
//                  passes the file on (cluster/broadcast.h); can: it could take part, on this card
//     model_id {id}
//                  the answer to model {root}; "" if it can't make one
//     bye      {}
//   host -> scheduler (scheduler/hosts.h)
//     hello    {token, protocol, role: "host", host, pid, offer: {...}, lease}
//     renew    {sent_us}
//     death    {worker, how, gone, refused, no_memory}
//                  as LocalLauncher::Event has it
//     leave    {}  its workers shall finish what they have begun and end
//     bye      {}
//   scheduler -> host
//     welcome  {epoch, order: {...}}
//     renewed  {sent_us}
//     kill     {worker}  it is hung
//     stop     {}  start no worker again
//     end      {}  all done: end the workers, send bye and exit
//   whoever looks for the scheduler
//     hello    {token, protocol, role: "look"}, answered by welcome {epoch} and the link's end
//   scheduler -> worker
//     welcome  {epoch, lease_s, margin_s, context: {...}}
//                  context: all that is the job's
//     leases   {leases: [{lease, unit, attempt, work: {...}}], more: bool}
//                  more = false: there is nothing else now
//     renewed  {sent_us}
//                  an echo: leases are good for lease_s from the time that was sent
//     bricks   {lease, bricks: [[block, file, key], ...]}
//                  of an assemble unit that was leased with bricks missing: these are there now
//     drop     {leases: [...], early: bool}
//                  no longer wanted: abandon them without an outcome. early: likewise all assemble
//                  units that were leased with bricks missing, some of which may have been
//                  announced over a link that broke
//     model    {root: true}, or {id, rank, size}
//                  make an id for a group; or take part in it. Without an id: read the file
//     drain    {}  finish or abandon what is begun, send no more `want`
//     end      {}  all done: send bye and exit
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tilery {

using Json = nlohmann::json;

inline constexpr int kProtocol = 6;
inline constexpr size_t kMaxHello = 4096;
inline constexpr size_t kMaxFrame = 64 << 20;

std::string EncodeFrame(const Json& message);  // length and body
// Body of one frame. Error(kInternal) if it is no MessagePack object with a string "type".
Json DecodeBody(const std::string& body);

std::string NewToken();  // 256 random bits as 64 hex digits, from the system
bool SameToken(const std::string& a, const std::string& b);  // constant time in the content

}  // namespace tilery
