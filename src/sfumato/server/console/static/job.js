// The state of a job, as the service tells it; the page is made anew where that changes.
export function following(line) {
  const events = new EventSource(line.dataset.events);
  const seconds = document.querySelector("[data-seconds]");
  const bar = document.querySelector("[data-running]");
  const text = document.querySelector("[data-running-text]");
  events.addEventListener("state", (event) => {
    const job = JSON.parse(event.data);
    if (job.refused || job.state !== line.dataset.state) {
      events.close();
      location.reload();
    } else if (bar) {
      bar.value = Math.min(job.running, bar.max);
      text.textContent = String(job.running);
    } else if (seconds) seconds.textContent = String(job.seconds);
  });
}
