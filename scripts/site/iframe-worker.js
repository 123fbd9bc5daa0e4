// Runs a worker in a hidden frame. Browsers start no worker for a page that is opened from a disk, and the search needs one.
if (location.protocol === "file:")
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      this.inside.importScripts = async (...urls) => { for (const each of urls) await this.load(each) }
      // The worker's answers. A frame's own postMessage would send to the frame itself.
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = this.load(url)
    }
    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.inside.document.createElement("script")
        Object.assign(script, { src: new URL(url, location), onload: resolve, onerror: reject })
        this.inside.document.body.append(script)
      })
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() { this.inside.frameElement.remove() }
  }
