/* A browser starts no worker for a page that was opened as a file. The search of the site asks for one,
   so on such pages a hidden frame of the same page does the work. On http nothing changes. */
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.document.write("<!doctype html><title>search</title>");
      inside.document.close();
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = new URL(url, location.href);
      this.ready = new Promise((resolve) => script.addEventListener("load", resolve));
      inside.document.head.appendChild(script);
    }
    postMessage(data) {
      this.ready.then(() => {
        const inside = this.frame.contentWindow;
        inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
}
