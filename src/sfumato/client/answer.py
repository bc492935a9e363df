"""An answer, and what can be made of it: a plot, tidied counts, totals, sampling errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.client.answer_values import AnswerValues
from sfumato.dp.refusal import Refused

if TYPE_CHECKING:
    from sfumato.client.plot import Plot


@dataclass(frozen=True, repr=False)
class Answer(AnswerValues):
    """Released values with their error bars, and what can be made of them without new cost.

    An interval has a low and a high end; one that is not known is infinite. Polars, pyarrow,
    DuckDB and others read an answer as it is, by Arrow's C stream: `polars.DataFrame(answer)`.
    """

    def plot(
        self,
        x: str | None = None,
        y: str | None = None,
        color: str | None = None,
        title: str | None = None,
    ) -> Plot:
        """Return a plot of one column, with error bars, a summary and a table.

        Args:
            x: The column along the axis; a key of the answer.
            y: The column of numbers.
            color: A second key, whose values have a color each.
            title: The title; by default it says what was asked.

        Returns:
            A plot that a notebook shows, and that `save(path)` writes as .svg, .png or .html.

        Raises:
            Refused: `unknown-column` for a name that the answer lacks.
        """
        from sfumato.client.plot import plotted

        return plotted(self, x=x, y=y, color=color, title=title)

    def tidy(self, margins: Answer | Sequence[Answer] = ()) -> Answer:
        """Return the answer with whole, non-negative counts that agree with margins; free.

        It is post-processing, so it costs nothing; the notes say what was changed.

        Args:
            margins: An answer with totals of the same numbers, or several, that the cells are to
                add up to.

        Returns:
            The changed answer.

        Raises:
            Refused: `not-in-language` for numbers without noise, or of a program.
        """
        from sfumato.client.tidy import tidied

        self._check_asked()
        return tidied(self, [margins] if isinstance(margins, Answer) else margins)

    def total(self, *keep: str) -> Answer:
        """Return the sums over all keys but those kept, with true error bars; free.

        Args:
            *keep: The keys that stay; without any, the sum over all of them.

        Returns:
            The totals as an answer.

        Raises:
            Refused: `not-in-language` for numbers that cannot be added, without noise, or of a
                program.
        """
        from sfumato.client.derived_totals import total_cells

        self._check_asked()
        return total_cells(self, keep)

    def with_sampling(self) -> Answer:
        """Return means whose error bars include the sampling error; free.

        The answer has to have STDDEV and COUNT of the column beside its AVG. Without this, every
        error bar is for the noise alone.

        Returns:
            The answer with wider error bars.

        Raises:
            Refused: `not-in-language` if a deviation or a count is missing.
        """
        from sfumato.client.sampling_error import with_sampling_error as with_sampling

        self._check_asked()
        return with_sampling(self)

    def _check_asked(self) -> None:
        if self.receipt.get("epsilon", 0) is None:
            raise Refused(
                "not-in-language",
                "These numbers have no noise, so nothing is to be made of their errors.",
                "Add them up as they are.",
            )
        if "question" not in self.receipt:
            raise Refused(
                "not-in-language",
                "This answer is a program's, and no question says what its numbers count.",
                "Ask counts, sums or means as a question.",
            )
