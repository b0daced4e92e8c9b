from multiprocessing import Pipe

from blend.core.engines.outbox import Inbox, Outbox


def test_messages_arrive_one_by_one_in_their_order() -> None:
    ours, theirs = Pipe()
    outbox, inbox = Outbox(ours, on_broken=lambda: None), Inbox(theirs)
    sent = [("message", number) for number in range(500)]
    for message in sent:
        outbox.put(message)
    outbox.flush()
    taken = []
    while inbox.poll():
        taken.append(inbox.take())
    outbox.close()

    assert taken == sent


def test_what_was_put_together_is_there_before_the_other_end_is_found_gone() -> None:
    ours, theirs = Pipe()
    ours.send([1, 2])
    ours.close()
    inbox = Inbox(theirs)

    assert (inbox.take(), inbox.take()) == (1, 2)
    assert inbox.poll()
    theirs.close()
