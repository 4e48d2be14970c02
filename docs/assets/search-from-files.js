// Lets the search work where the pages are read from the file system.
//
// mkdocs-material searches in a worker, and browsers start no worker from a file: URL. They do run scripts from such
// URLs in a page, hence also in a hidden frame of it. Here Worker becomes a class that does so, with the part of the
// interface of workers that the search needs. Pages that come from a server keep the worker of the browser.
"use strict";

if (location.protocol === "file:") {
  const message = (event) => new MessageEvent("message", { data: event.data });

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.addEventListener("message", (event) => this.onmessage?.(event));
      this.addEventListener("error", (event) => this.onerror?.(event));

      // One port is the page's, the other the script's. A port keeps what is sent to it until its onmessage is set.
      const { port1, port2 } = new MessageChannel();
      this.port = port1;
      this.port.onmessage = (event) => this.dispatchEvent(message(event));
      this.postMessage = (data) => this.port.postMessage(data);

      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html><body></body>";
      this.frame.onload = () => this.start(new URL(url, document.baseURI), port2);
      document.body.append(this.frame);
    }

    async start(url, port) {
      const inside = this.frame.contentWindow;
      const run = (name) => new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.src = new URL(name, url);
        script.onload = resolve;
        script.onerror = () => reject(new Error(`${script.src} cannot be loaded`));
        inside.document.body.append(script);
      });
      // Unlike that of a worker it cannot block: the search awaits the promise.
      inside.importScripts = async (...names) => { for (const name of names) await run(name); };
      inside.postMessage = (data) => port.postMessage(data);
      const fail = (error) => this.dispatchEvent(new ErrorEvent("error", { message: error.message, error }));
      inside.addEventListener("error", fail);
      await run(url).catch(fail);
      port.onmessage = (event) => inside.dispatchEvent(message(event));
    }

    terminate() {
      this.port.close();
      this.frame.remove();
    }
  };
}
