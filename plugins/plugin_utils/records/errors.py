# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All errors of the controller as one tree. The text of each is a sentence that a person can act on.

    AcceptanceError
        RunError                    a run cannot be made, opened, written or judged: the play ends with this sentence
            PlanError               planning/interface.py       the inventory asks for something that cannot be planned
            PlainError              records/plain.py            the value of a variable is no data
            WaiverError             judging/waivers.py          a waiver cannot be used
            NewReferenceError       judging/references.py       a new reference cannot be used
            HistoryError            history/store.py            the history cannot be read or written
            NodeChangedError        planes/node_control.py      somebody has changed a node since it was read
        ExpectationError            judging/expectations.py     an expectation cannot be used; a ValueError too, as the next two
        Unusable                    judging/bands.py            a measurement lacks the number that it should have
        ChangedError                records/raw.py              a raw text is not what was written
        SinkError                   another system did not take what it was told
            WebhookError            observing/webhook.py
            TemplateError           observing/chats.py
            TraceError              observing/traces.py
            PushError               observing/pushgateway.py
        RequestError                console/request.py          the fields of a request that are wrong
        ActionError                 console/actions.py          a request cannot be carried out
            NotFound, Conflict, Denied, Unavailable
        WebError                    a web request is not answered as it was meant
            RequestRefused          console/web/request_context.py
            Away                    console/web/auth.py         nobody can say who a caller is
            TooLong                 console/web/sessions.py     a token that no cookie can hold
            Full                    console/web/hub.py          as many pages listen as may
        Stopped                     sharing/running.py          the steps of a case cannot go on
        Absent                      sharing/expressions.py      a value that an expression needs was not measured
        ExpressionError             sharing/expressions.py      a text is no expression; a ValueError too
        NoAnswer                    sharing/alerts.py           a Prometheus does not answer
        KubeError                   planes/kubernetes/api/client.py     a ReasonedError too
            ControllerError
        SlurmError                  planes/slurm/client.py              a ReasonedError too

An error that several packages raise stands here, any other beside what raises it. What fails on a node has a reason code instead:
ReasonedError in `module_utils/answer/reasons.py`.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations


class AcceptanceError(Exception):
    """The base of all errors of the controller."""


class RunError(AcceptanceError):
    """A run cannot be made, opened, written or judged. The text is one sentence for the user."""


class SinkError(AcceptanceError):
    """Another system did not take what it was told."""


class WebError(AcceptanceError):
    """A web request is not answered as it was meant."""
