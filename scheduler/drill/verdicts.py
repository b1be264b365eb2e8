"""Whether a run kept what the product promises in every failure. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from otp_service.messages.rules import Lane, MessageStatus, Reason
from scheduler.drill.journal import PHASES, Seen, bound


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a condition held, and in words what was seen."""

    condition: str
    holds: bool
    words: str

    def __str__(self) -> str:
        return f"{'yes' if self.holds else 'NO '}  {self.words}"


#: A condition of one failure alone, beside those of all.
Check = Callable[[Seen], Verdict]


def verdicts(seen: Seen, own: Sequence[Check] = ()) -> list[Verdict]:
    """Those of every failure, and its own."""
    return [check(seen) for check in (_ends, _copies, _otp, _in_time, _fresh, *own)]


def _ends(seen: Seen) -> Verdict:
    missing, of, held = len(seen.without_end), len(seen.accepted), len(seen.held)
    words = f"accepted messages without an end: {missing} of {of}" + (f" (and {held} held as they ask)" if held else "")
    return Verdict("ends", bool(of) and not missing, words)


def _copies(seen: Seen) -> Verdict:
    over = len(seen.over_budget)
    words = f"messages of which more copies left than their duplicate budget allows: {over}"
    return Verdict("copies", not over, words)


def _otp(seen: Seen) -> Verdict:
    found = [(phase, seen.waits(phase), bound(phase)) for phase in PHASES]
    holds = all(waits.p99 <= most.total_seconds() for _, waits, most in found)
    waited = ", ".join(f"{waits.p99:.1f} s {phase} (≤ {most.total_seconds():g})" for phase, waits, most in found)
    return Verdict("otp", holds, f"99 of 100 otp were with a provider within {waited}")


def _in_time(seen: Seen) -> Verdict:
    late = sum(each.lane is Lane.OTP and _expired_unsent(seen, each.id) for each in seen.accepted)
    return Verdict("in time", not late, f"otp that ended in the queue unsent: {late}")


def _fresh(seen: Seen) -> Verdict:
    return Verdict("fresh", not seen.stale, f"copies handed over after their message's end: {seen.stale}")


# --- conditions of single failures ---------------------------------------------------------------------


def switched(seen: Seen) -> Verdict:
    """What the fault hit went over the backup while it lasted, or right after."""
    fault = seen.fault
    over = sum(copy.route == fault.backup and copy.at >= fault.began_at for copy in seen.copies)
    return Verdict("switched", over > 0, f"copies over the backup since the fault began: {over}")


def was_unclear(seen: Seen) -> Verdict:
    """The fault left attempts of which nobody knew whether they had left."""
    unclear = sum(each.was_unknown for each in seen.attempts)
    return Verdict("unclear", unclear > 0, f"attempts whose outcome was unknown for a while: {unclear}")


def none_was_sent_twice(seen: Seen) -> Verdict:
    """Where every answer was clear, there is no reason for a second copy."""
    unclear = {each.message_id for each in seen.attempts if each.was_unknown}
    clear = [each for each in seen.accepted if each.id not in unclear]
    twice = sum(len(seen.left(each.text_sha256)) > 1 for each in clear)
    return Verdict("once", not twice, f"messages that were sent twice, though every answer was clear: {twice}")


def all_were_delivered(seen: Seen) -> Verdict:
    """Late, doubled and disordered reports change nothing in the end."""
    others = sum(message.status is not MessageStatus.DELIVERED for message in seen.stored.values())
    return Verdict("delivered", not others, f"messages that ended otherwise than delivered: {others}")


def carried_again(seen: Seen) -> Verdict:
    """The route's breaker opened and closed, and messages went over the route again."""
    closed = [change for change in seen.breakers if change.kind == "breaker_closed"]
    opened = any(change.kind == "breaker_opened" for change in seen.breakers)
    again = sum(copy.route == change.route and copy.at > change.at for change in closed[:1] for copy in seen.copies)
    return Verdict("recovered", opened and again > 0, f"copies over the route since its breaker closed: {again}")


def ran_out(seen: Seen) -> Verdict:
    """Messages ended in the queue, unsent, and of none of those a copy was handed over."""
    unsent = [each for each in seen.accepted if _expired_unsent(seen, each.id)]
    sent = sum(bool(seen.of_text.get(each.text_sha256)) for each in unsent)
    words = f"messages that ended in the queue unsent: {len(unsent)}, of which were handed over all the same: {sent}"
    return Verdict("ran out", bool(unsent) and not sent, words)


def _expired_unsent(seen: Seen, message_id: str) -> bool:
    stored = seen.stored.get(message_id)
    return stored is not None and stored.reason == Reason.EXPIRED_UNSENT


def kept_names(seen: Seen) -> Verdict:
    """Nothing left under another name than its message asked for."""
    asked = sum(bool(each.sender_name) for each in seen.accepted)
    words = f"copies under another sender name than the {asked} messages with one asked for: {seen.wrong_names}"
    return Verdict("names", bool(asked) and not seen.wrong_names, words)
